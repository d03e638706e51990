package tenants

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenancy"
)

// policyIndex is the name of the cache's index of VirtualClusters by the TenantPolicy that they name.
const policyIndex = "policyName"

// policyOf returns the name of the TenantPolicy of a VirtualCluster.
func policyOf(vc *tenancyv1alpha1.VirtualCluster) string {
	if vc.Spec.PolicyName == "" {
		return tenancyv1alpha1.DefaultPolicyName
	}
	return vc.Spec.PolicyName
}

// indexPolicy is the client.IndexerFunc of policyIndex.
func indexPolicy(object client.Object) []string {
	vc, ok := object.(*tenancyv1alpha1.VirtualCluster)
	if !ok {
		return nil
	}
	return []string{policyOf(vc)}
}

// ofPolicy returns the VirtualClusters that name a TenantPolicy.
func (c *Controller) ofPolicy(ctx context.Context, object client.Object) []reconcile.Request {
	return ofIndex(ctx, c.Client, policyIndex, object.GetName())
}

// policies holds the TenantPolicies in force: each is compiled once per generation for all tenants that name it. The
// zero value holds none. All methods may be called concurrently.
type policies struct {
	mu       sync.Mutex
	compiled map[string]compiledPolicy
	refs     map[types.NamespacedName]*policy.Ref
}

// compiledPolicy is what became of one generation of a TenantPolicy.
type compiledPolicy struct {
	uid        types.UID
	generation int64
	// policy is that generation, or the last one that was valid; nil if none was.
	policy *policy.Policy
	// err is why that generation is invalid.
	err error
}

// ref returns the policy.Ref of a VirtualCluster. It is the same one for all its connections, so that a change reaches
// those that last.
func (p *policies) ref(name types.NamespacedName) *policy.Ref {
	p.mu.Lock()
	defer p.mu.Unlock()
	ref, exists := p.refs[name]
	if !exists {
		if p.refs == nil {
			p.refs = map[types.NamespacedName]*policy.Ref{}
		}
		ref = &policy.Ref{}
		p.refs[name] = ref
	}
	return ref
}

// forget drops the policy.Ref of a VirtualCluster that is gone. A connection that is still ending keeps it.
func (p *policies) forget(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.refs, name)
}

// of returns the policy of that name, nil for the shipped one, and why it is another than that one, the zero
// Reason if it is not. The shipped policy is the one named default where there is none of that name.
func (p *policies) of(ctx context.Context, reader client.Reader, name string) (*policy.Policy, tenancy.Reason, error) {
	object := &tenancyv1alpha1.TenantPolicy{}
	err := reader.Get(ctx, client.ObjectKey{Name: name}, object)
	if apierrors.IsNotFound(err) {
		p.mu.Lock()
		delete(p.compiled, name)
		p.mu.Unlock()
		if name == tenancyv1alpha1.DefaultPolicyName {
			return nil, tenancy.Reason{}, nil
		}
		return nil, tenancy.Reason{
			Reason:  tenancyv1alpha1.ReasonPolicyNotFound,
			Message: fmt.Sprintf("There is no TenantPolicy %s: the one that is shipped holds", name),
		}, nil
	}
	if err != nil {
		return nil, tenancy.Reason{}, fmt.Errorf("getting TenantPolicy %s: %w", name, err)
	}
	compiled := p.compile(object)
	if compiled.err == nil {
		return compiled.policy, tenancy.Reason{}, nil
	}
	holds := "the last valid one of that name holds"
	if compiled.policy == nil {
		holds = "the one that is shipped holds"
	}
	return compiled.policy, tenancy.Reason{Reason: tenancyv1alpha1.ReasonPolicyInvalid, Message: fmt.Sprintf("%v: %s", compiled.err, holds)}, nil
}

// compile returns what became of a TenantPolicy, compiled if it is not yet.
func (p *policies) compile(object *tenancyv1alpha1.TenantPolicy) compiledPolicy {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, exists := p.compiled[object.Name]
	if exists && before.uid == object.UID && before.generation == object.Generation {
		return before
	}
	current := compiledPolicy{uid: object.UID, generation: object.Generation}
	if current.policy, current.err = policy.New(object.Name, &object.Spec); current.err != nil {
		current.policy = before.policy
	}
	if p.compiled == nil {
		p.compiled = map[string]compiledPolicy{}
	}
	p.compiled[object.Name] = current
	return current
}
