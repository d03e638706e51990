package kinds

// Specs returns the declarations of all kinds. Informers, sessions, the routing of events and clean-up iterate over
// this list and name no kind: a new kind is a file, its test, and a line here.
func Specs() []Spec {
	return WithEvents(append([]Spec{
		namespaceSpec(),
		quotaSpec(),
		podSpec(Needs{
			Isolated: isolated, EnsureNode: ensureNode, GoesWithPod: goesWithPod, ClaimIsTakenBack: claimIsTakenBack, PriorityClass: OfferedPriorityClass,
		}),
		tokenSpec(),
		nodeSpec(),
		claimSpec(),
		volumeSpec(),
		snapshotSpec(),
		Copied(serviceAccounts()),
		Copied(secrets()),
		Copied(configMaps()),
		serviceSpec(),
		endpointSliceSpec(forbiddenAddress),
		ingresses(),
		budgetSpec(),
		networkPolicySpec(),
		isolationSpec(),
		addressesSpec(),
		apiServerSpec(),
		serviceCIDRSpec(),
		customSpec(),
	}, offerSpecs()...))
}

// SetCustom makes the SyncPolicies that are given those that are followed. Each names another kind.
func SetCustom(env *Env, all []Custom) { env.Extend(WithEvents(customSpecs(env, all))) }
