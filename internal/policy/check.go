package policy

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/slice"
)

// maxRefusals bounds the refusals of one object: a tenant decides how many of its fields are forbidden.
const maxRefusals = 32

// Refusal is one way in which an object of a super cluster breaks a policy.
type Refusal struct {
	// Field is the path of the field, such as spec.volumes[0]. It is empty in a Refusal that stands for all beyond a
	// bound.
	Field string
	// Message says what is forbidden, and what is allowed instead. It names limit and value: what an existing object
	// breaks in the same words may stay when it is updated, so another value must be another Message.
	Message string
}

// Facts are the inputs of Check besides policy and object.
type Facts struct {
	// Held is what the namespace holds in the super cluster; a pod may request nothing else.
	Held slice.Amounts
	// Forbidden reports whether an EndpointSlice may not name an address: it is the pool's, and no pod of the tenant
	// has it. nil forbids none.
	Forbidden func(netip.Addr) bool
}

// Check returns how an object that is to be written to a super cluster breaks policy, nil if it does not. It runs after
// translation, at create and at every update, so that no translation can open a hole. An object without UID is one that
// is to be created: of an existing one, what the super cluster itself sets is no refusal.
//
// The order of refusals follows from the object alone. There are a bounded number of them; the last one counts the
// others.
func Check(policy *Policy, object client.Object, facts Facts) []Refusal {
	found := &refusals{}
	if object.GetUID() == "" {
		policy.checkMetadata(object, found)
	}
	switch typed := object.(type) {
	case *corev1.Pod:
		policy.checkPod(typed, facts, found)
	case *corev1.Service:
		policy.checkService(typed, found)
	case *networkingv1.Ingress:
		policy.checkIngress(typed, found)
	case *discoveryv1.EndpointSlice:
		checkEndpoints(typed, facts.Forbidden, found)
	case *corev1.PersistentVolumeClaim:
		policy.checkClaims([]claim{{"spec", &typed.ObjectMeta, &typed.Spec, typed.UID != ""}}, found)
	case *unstructured.Unstructured:
		policy.checkSnapshot(typed, found)
	}
	return found.all()
}

// refusals collects those of one object. The zero value has none.
type refusals struct {
	list []Refusal
	more int
}

// add adds a Refusal. Arguments are formatted only if it is kept.
func (r *refusals) add(where string, format string, args ...any) {
	if len(r.list) == maxRefusals {
		r.more++
		return
	}
	r.list = append(r.list, Refusal{Field: where, Message: fmt.Sprintf(format, args...)})
}

func (r *refusals) all() []Refusal {
	if r.more > 0 {
		return append(r.list, Refusal{Message: fmt.Sprintf("%d more fields are forbidden", r.more)})
	}
	return r.list
}

// at returns the path of an element of a list.
func at(list string, index int) string { return fmt.Sprintf("%s[%d]", list, index) }

// names is a list of what is allowed, as messages have it.
type names []string

// String implements fmt.Stringer. It cuts long lists.
func (n names) String() string {
	const most = 12
	if len(n) == 0 {
		return "none"
	}
	var text strings.Builder
	for i, name := range n {
		switch {
		case i == most:
			fmt.Fprintf(&text, " and %d more", len(n)-most)
			return text.String()
		case i > 0:
			text.WriteString(", ")
		}
		if name == "" {
			name = `""`
		}
		text.WriteString(name)
	}
	return text.String()
}
