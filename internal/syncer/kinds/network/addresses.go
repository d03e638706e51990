package network

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// maxTold bounds the addresses of a tenant's pods that others are told, and those that are taken up of others.
	// NetworkPolicies name each.
	maxTold = 500
	// maxToldLabels bounds the labels of these pods, in bytes.
	maxToldLabels = 64 << 10
	// addressesPeriod is the least time between two changes of what a tenant's ClusterAddresses say, and between two
	// that are taken up. toldRate is how many bytes of them are written in a second, in the long run: the etcd of the
	// meta cluster keeps each version for some minutes.
	addressesPeriod = time.Second
	toldRate        = 8 << 10
	// controllersPeriod is how often it is looked where ingress controllers are, maxControllerNamespaces and
	// maxControllers how many namespaces of them are told, and addresses in each.
	controllersPeriod                       = 10 * time.Second
	maxControllerNamespaces, maxControllers = 64, 64
)

// AddressesSpec is that of what super clusters tell each other.
func AddressesSpec() kind.Spec {
	return kind.Spec{
		Name: kind.Addresses,
		Wakes: map[string]func(*kind.Env, kind.Change) []engine.Key{
			kind.Pod: func(env *kind.Env, change kind.Change) []engine.Key {
				before, after := podOf(change.Old), podOf(change.Current)
				if change.Side != kind.SuperSide || before != nil && after != nil && tellsSame(before, after) {
					return nil
				}
				return toldKeys(env, change.Object())
			},
			kind.Namespace: func(env *kind.Env, change kind.Change) []engine.Key {
				if change.Side != kind.SuperSide {
					return nil
				}
				return toldKeys(env, change.Object())
			},
		},
		OfTenant: func(env *kind.Env, tenant *kind.Tenant) []engine.Key {
			return append(addressKeys(env, tenant.Key), networkKeys(env)...)
		},
		OfNamespace: func(env *kind.Env, tenant, _ string) []engine.Key { return addressKeys(env, tenant) },
		New: func(env *kind.Env) engine.Kind {
			made := &Addresses{env: env}
			env.OnForget(made.turns.Forget)
			return made
		},
	}
}

func podOf(object client.Object) *corev1.Pod {
	pod, _ := object.(*corev1.Pod)
	return pod
}

// tellsSame returns whether others are told the same of two versions of a super pod.
func tellsSame(a, b *corev1.Pod) bool {
	return slices.Equal(kind.AddressesOfPod(a), kind.AddressesOfPod(b)) && maps.Equal(labelsTold(a), labelsTold(b))
}

// labelsTold returns the labels of a super object that selectors of its tenant are translated to.
func labelsTold(object metav1.Object) map[string]string {
	told := maps.Clone(object.GetLabels())
	maps.DeleteFunc(told, func(key, _ string) bool { return !tenancy.IsLabelKey(key) })
	return told
}

// toldKeys returns the key of what others are told of the tenant that owns a super object; none without a pool.
func toldKeys(e *kind.Env, superObject client.Object) []engine.Key {
	if owner, owned := tenancy.GetOwner(superObject); owned && e.Told != nil {
		return []engine.Key{{Tenant: owner.ClusterKey, Kind: kind.Addresses, Name: e.ID}}
	}
	return nil
}

// AddressesChanged returns the key to enqueue for a change of the ClusterAddresses of another super cluster in a
// namespace of the meta cluster. One of this super cluster is put right if somebody has changed it.
func AddressesChanged(e *kind.Env, namespace, superCluster string) engine.Key {
	key := engine.Key{Tenant: namespace, Kind: kind.Addresses}
	switch {
	case superCluster == e.ID:
		key.Name = e.ID
	case namespace == tenancyv1alpha1.ManagerNamespace:
		key.Tenant = ""
	}
	return key
}

// addressKeys returns the keys of a tenant's addresses.
func addressKeys(e *kind.Env, tenant string) []engine.Key {
	if e.Told == nil {
		return nil
	}
	return []engine.Key{{Tenant: tenant, Kind: kind.Addresses, Name: e.ID}, {Tenant: tenant, Kind: kind.Addresses}}
}

// networkKeys returns the keys of the super clusters' own addresses.
func networkKeys(e *kind.Env) []engine.Key {
	if e.Told == nil {
		return nil
	}
	return []engine.Key{{Tenant: tenancyv1alpha1.ManagerNamespace, Kind: kind.Addresses, Name: e.ID}, {Kind: kind.Addresses}}
}

// Addresses tells the other super clusters of the pool which addresses this one and its tenants' pods have, and takes
// up what they tell.
type Addresses struct {
	env   *kind.Env
	turns turns
}

var _ engine.Kind = &Addresses{}

// Name implements engine.Kind.
func (*Addresses) Name() string { return kind.Addresses }

// Keys implements engine.Kind.
func (a *Addresses) Keys() []engine.Key {
	keys := networkKeys(a.env)
	for _, tenant := range a.env.Tenants() {
		keys = append(keys, addressKeys(a.env, tenant.Key)...)
	}
	return keys
}

// Reconcile implements engine.Kind.
func (a *Addresses) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	if a.env.Told == nil {
		return 0, nil
	}
	now := a.env.Clock.Now()
	if left := a.turns.left(key, now); left > 0 {
		return left, nil
	}
	if key.Name == "" {
		a.turns.Set(key, now.Add(takeUp(a.env, key.Tenant)))
		return 0, nil
	}
	a.turns.Set(key, now.Add(addressesPeriod)) // it looks at all pods of the tenant
	told, again, err := a.toldOf(ctx, key.Tenant)
	if err != nil {
		return 0, err
	}
	written, err := a.tell(ctx, key.Tenant, told)
	if written {
		a.turns.Set(key, now.Add(max(addressesPeriod, time.Duration(sizeTold(told))*time.Second/toldRate)))
	}
	return again, err
}

// toldOf returns what others are to be told of a tenant, or of the super cluster if that is the key, and after what
// time to look again, if nothing tells.
func (a *Addresses) toldOf(ctx context.Context, tenant string) (told *tenancyv1alpha1.ClusterAddressesStatus, again time.Duration, err error) {
	if tenant != tenancyv1alpha1.ManagerNamespace {
		told, err = a.ofPods(ctx, tenant)
		return told, 0, err
	}
	told, left := networkOf(a.env).told(a.env)
	left = slices.Clone(left)
	namespaces := a.controllerNamespaces()
	if len(namespaces) > 0 {
		again = controllersPeriod
	}
	if len(namespaces) > maxControllerNamespaces {
		namespaces = namespaces[:maxControllerNamespaces]
		left = append(left, fmt.Sprintf("more than %d namespaces of ingress controllers: the pods of the others do not call pods in other super clusters", maxControllerNamespaces))
	}
	for _, namespace := range namespaces {
		addresses, err := a.controllersIn(ctx, namespace)
		if err != nil {
			return nil, 0, err
		}
		if len(addresses) > maxControllers {
			addresses = addresses[:maxControllers]
			left = append(left, fmt.Sprintf("more than %d pods of ingress controllers in namespace %s: the others do not call pods in other super clusters", maxControllers, namespace))
		}
		if len(addresses) > 0 {
			told.Addresses += int32(len(addresses)) //nolint:gosec // at most maxControllers
			told.Namespaces = append(told.Namespaces, tenancyv1alpha1.NamespaceAddresses{Name: namespace, Pods: []tenancyv1alpha1.PodAddresses{{Addresses: addresses}}})
		}
	}
	told.Conditions = []metav1.Condition{completeness(tenancyv1alpha1.ReasonAddressesLeftOut, strings.Join(left, ". "))}
	return told, again, nil
}

// controllerNamespaces returns the super namespaces of ingress controllers that call pods of tenants here, sorted.
func (a *Addresses) controllerNamespaces() []string {
	var namespaces []string
	for _, tenant := range a.env.Tenants() {
		namespaces = append(namespaces, tenant.Policy.Get().Spec().Traffic.ControllerNamespaces...)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// controllersIn returns the addresses of the pods in a namespace of the super cluster that belongs to the operator,
// sorted: no cache has them. It asks the API server's.
func (a *Addresses) controllersIn(ctx context.Context, namespace string) (addresses []string, err error) {
	var pods corev1.PodList
	if err := a.env.Super.List(ctx, &pods, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, fmt.Errorf("listing the pods of namespace %s: %w", namespace, err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; !podutil.IsPodTerminal(pod) {
			addresses = append(addresses, kind.IPsOf(pod)...)
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}

// ofPods returns what others are told of a tenant's pods; nil for nothing.
func (a *Addresses) ofPods(ctx context.Context, tenant string) (*tenancyv1alpha1.ClusterAddressesStatus, error) {
	spread, err := a.env.Assignments.Spread(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("reading where tenant %s is placed: %w", tenant, err)
	}
	// One that leaves another super cluster has pods there still.
	if !spread && !slices.ContainsFunc(a.env.Told(tenant), func(told *tenancyv1alpha1.ClusterAddresses) bool { return told.Name != a.env.ID }) {
		return nil, nil //nolint:nilnil // nothing is to be told
	}
	var pods []*corev1.Pod
	for _, object := range a.env.SuperCache.Index(kind.Pod, kind.IndexTenant, tenant) {
		if pod, ok := object.(*corev1.Pod); ok && !pod.Spec.HostNetwork && len(kind.AddressesOfPod(pod)) > 0 {
			pods = append(pods, pod)
		}
	}
	return AddressesOfPods(pods, func(namespace string) map[string]string {
		superNamespace, exists, _ := kind.Get[*corev1.Namespace](a.env.SuperCache, kind.Namespace, "", tenancy.SuperNamespace(tenant, namespace))
		if !exists {
			return nil
		}
		return labelsTold(superNamespace)
	}), nil
}

// AddressesOfPods returns what others are told of a tenant's super pods: the oldest, as far as the bounds go; nil for
// none. labelsOf returns the labels of the super namespace of a tenant's namespace. It changes the order of pods.
func AddressesOfPods(pods []*corev1.Pod, labelsOf func(namespace string) map[string]string) *tenancyv1alpha1.ClusterAddressesStatus {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	type group struct{ namespace, labels string }
	namespaces := map[string]*tenancyv1alpha1.NamespaceAddresses{}
	groups := map[group]int{}
	count, bytes, complete := 0, 0, true
	for _, pod := range pods {
		owner, owned := tenancy.GetOwner(pod)
		if !owned {
			continue
		}
		addresses, own := kind.IPsOf(pod), labelsTold(pod)
		in := namespaces[owner.Namespace]
		more := 0
		if in == nil {
			in = &tenancyv1alpha1.NamespaceAddresses{Name: owner.Namespace, Labels: labelsOf(owner.Namespace)}
			more = sizeOfLabels(in.Labels)
		}
		name := group{owner.Namespace, labels.FormatLabels(own)}
		at, known := groups[name]
		if !known {
			more += sizeOfLabels(own)
		}
		if count+len(addresses) > maxTold || bytes+more > maxToldLabels {
			complete = false
			continue
		}
		count, bytes = count+len(addresses), bytes+more
		if !known {
			at = len(in.Pods)
			in.Pods = append(in.Pods, tenancyv1alpha1.PodAddresses{Labels: own})
		}
		in.Pods[at].Addresses = append(in.Pods[at].Addresses, addresses...)
		namespaces[owner.Namespace], groups[name] = in, at
	}
	if len(namespaces) == 0 {
		return nil
	}
	left := ""
	if !complete {
		left = fmt.Sprintf("the oldest pods are listed: at most %d addresses, and %d bytes of labels", maxTold, maxToldLabels)
	}
	status := &tenancyv1alpha1.ClusterAddressesStatus{Addresses: int32(count), Conditions: []metav1.Condition{completeness(tenancyv1alpha1.ReasonTooManyAddresses, left)}} //nolint:gosec // at most maxTold
	for _, name := range slices.Sorted(maps.Keys(namespaces)) {
		in := namespaces[name]
		for i := range in.Pods {
			slices.Sort(in.Pods[i].Addresses)
			in.Pods[i].Addresses = slices.Compact(in.Pods[i].Addresses)
		}
		slices.SortFunc(in.Pods, func(a, b tenancyv1alpha1.PodAddresses) int { return slices.Compare(a.Addresses, b.Addresses) })
		status.Namespaces = append(status.Namespaces, *in)
	}
	return status
}

// completeness returns the condition of ClusterAddresses, with a reason for what is left out, "" for nothing.
func completeness(reason, left string) metav1.Condition {
	if left == "" {
		return metav1.Condition{Type: tenancyv1alpha1.ConditionAddressesComplete, Status: metav1.ConditionTrue, Reason: tenancyv1alpha1.ReasonAddressesComplete}
	}
	return metav1.Condition{
		Type: tenancyv1alpha1.ConditionAddressesComplete, Status: metav1.ConditionFalse, Reason: reason, Message: tenancy.Cut(left, tenancy.MaxEventNote),
	}
}

// sizeTold returns about how many bytes ClusterAddresses take.
func sizeTold(told *tenancyv1alpha1.ClusterAddressesStatus) int {
	if told == nil {
		return 0
	}
	const each = 24 // of an address, with what is around it
	size := each * (len(told.Ranges) + len(told.Nodes) + len(told.Agents))
	for i := range told.Namespaces {
		size += sizeOfLabels(told.Namespaces[i].Labels)
		for j := range told.Namespaces[i].Pods {
			size += sizeOfLabels(told.Namespaces[i].Pods[j].Labels) + each*len(told.Namespaces[i].Pods[j].Addresses)
		}
	}
	return size
}

func sizeOfLabels(of map[string]string) int {
	size := 0
	for key, value := range of {
		size += len(key) + len(value)
	}
	return size
}

// tell lets the ClusterAddresses of this super cluster in a namespace of the meta cluster say what is told, and deletes
// them if that is nil. It returns whether it wrote.
func (a *Addresses) tell(ctx context.Context, namespace string, told *tenancyv1alpha1.ClusterAddressesStatus) (bool, error) {
	var current *tenancyv1alpha1.ClusterAddresses
	for _, each := range a.env.Told(namespace) {
		if each.Name == a.env.ID {
			current = each
		}
	}
	desired := &tenancyv1alpha1.ClusterAddresses{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: a.env.ID}}
	if current != nil {
		desired = current.DeepCopy()
	}
	if told == nil {
		if current == nil {
			return false, nil
		}
		return true, a.done(ctx, "delete", client.IgnoreNotFound(a.env.Meta.Delete(ctx, desired)))
	}
	conditions := desired.Status.Conditions
	desired.Status = *told
	desired.Status.Conditions = conditions
	for _, condition := range told.Conditions {
		if before := meta.FindStatusCondition(conditions, condition.Type); before == nil || before.Status != condition.Status || before.Message != condition.Message {
			condition.LastTransitionTime = metav1.NewTime(a.env.Clock.Now())
			meta.SetStatusCondition(&desired.Status.Conditions, condition)
		}
	}
	switch {
	case current == nil:
		err := a.env.Meta.Create(ctx, desired)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) && namespace != tenancyv1alpha1.ManagerNamespace {
			return true, nil // the tenant ends
		}
		return true, a.done(ctx, "create", err)
	case equality.Semantic.DeepEqual(current.Status, desired.Status):
		return false, nil
	}
	return true, a.done(ctx, "update", a.env.Meta.Update(ctx, desired))
}

func (a *Addresses) done(ctx context.Context, operation string, err error) error {
	return a.env.Done(ctx, kind.Addresses, operation, err)
}

// turns holds when the next turn of a key is. The zero value holds none. All methods may be called concurrently.
type turns struct{ engine.Memo[time.Time] }

// left returns how long it is until the turn of a key, zero if it is now.
func (t *turns) left(key engine.Key, now time.Time) time.Duration {
	next, _ := t.Get(key)
	return max(0, next.Sub(now))
}
