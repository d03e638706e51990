package tenancy

// Reason is why something is not as it was asked for, in the form of conditions and Events. The zero Reason says that nothing is wrong.
type Reason struct {
	// Reason is one word in CamelCase, one of the Reason constants of the API or of the package that returns it.
	Reason string
	// Message is a sentence for a person: what is wrong, and what to do.
	Message string
}
