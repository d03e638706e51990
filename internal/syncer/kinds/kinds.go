// Package kinds lists the kinds that are synced. Each family of them has a package of its own.
package kinds

import (
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kind/copier"
	"github.com/superpool/superpool/internal/syncer/kinds/budgets"
	"github.com/superpool/superpool/internal/syncer/kinds/config"
	"github.com/superpool/superpool/internal/syncer/kinds/dynamic"
	"github.com/superpool/superpool/internal/syncer/kinds/events"
	"github.com/superpool/superpool/internal/syncer/kinds/namespaces"
	"github.com/superpool/superpool/internal/syncer/kinds/network"
	"github.com/superpool/superpool/internal/syncer/kinds/nodes"
	"github.com/superpool/superpool/internal/syncer/kinds/pods"
	"github.com/superpool/superpool/internal/syncer/kinds/services"
	"github.com/superpool/superpool/internal/syncer/kinds/tokens"
	"github.com/superpool/superpool/internal/syncer/kinds/volumes"
)

// Specs returns the declarations of all kinds. Informers, sessions, the routing of events and clean-up iterate over
// this list and name no kind: a new kind is a file, its test, and a line here.
func Specs() []kind.Spec {
	return events.With(append([]kind.Spec{
		namespaces.NamespaceSpec(),
		namespaces.QuotaSpec(),
		pods.Spec(pods.Needs{
			Isolated: network.Isolated, EnsureNode: nodes.Ensure, GoesWithPod: volumes.GoesWithPod, ClaimIsTakenBack: volumes.ClaimIsTakenBack, PriorityClass: dynamic.OfferedPriorityClass,
		}),
		tokens.Spec(),
		nodes.Spec(),
		volumes.ClaimSpec(),
		volumes.VolumeSpec(),
		volumes.SnapshotSpec(),
		copier.Spec(config.ServiceAccounts()),
		copier.Spec(config.Secrets()),
		copier.Spec(config.Maps()),
		services.ServiceSpec(),
		services.EndpointSliceSpec(network.ForbiddenAddress),
		services.IngressSpec(),
		budgets.Spec(),
		network.PolicySpec(),
		network.IsolationSpec(),
		network.AddressesSpec(),
		network.APIServerSpec(),
		network.ServiceCIDRSpec(),
		dynamic.CustomSpec(),
	}, dynamic.OfferSpecs()...))
}

// SetCustom makes the SyncPolicies that are given those that are followed. Each names another kind.
func SetCustom(env *kind.Env, all []dynamic.Custom) { env.Extend(events.With(dynamic.Specs(env, all))) }
