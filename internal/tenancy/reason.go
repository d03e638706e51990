package tenancy

// Reason explains, in the form of conditions and Events, why a desired state is not reached. The zero Reason means that
// it is.
type Reason struct {
	// Reason is one word in CamelCase, one of the Reason constants of the API or of the package that returns it.
	Reason string
	// Message is a sentence for a person: what is wrong, and what to do.
	Message string
}
