package namespaces

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// Limits counts what the NamespacePlacements of one tenant have together, and holds it against the limits of the
// tenant's policy. Each question costs as much as the policy has limits, however many namespaces there are; only what
// makes room looks at all namespaces that wait for some.
//
// Specs are written by Reconciler alone, which reads each NamespacePlacement before it changes it. So a
// namespace counts with what was last read or written of it (count), and with what it may be about to write (admit),
// whichever is more: two namespaces never pass into the same room. A nil Limits bounds nothing. It is safe for
// concurrent use.
type Limits struct {
	policy *policy.Ref

	mu sync.Mutex
	// known holds what each namespace counts with. filled is whether all NamespacePlacements were counted once.
	known  map[string]tenantShare
	filled bool
	// total, slices and placements are the sums of all shares. Sums of what tenants write need more than 64 bits.
	total              map[corev1.ResourceName]*big.Int
	slices, placements int64
	// refused holds the namespaces that wait for room, above those that are reported to have more than is allowed.
	refused map[string]refusedShare
	above   map[string]bool
	serial  int64
	enqueue func(namespace string)
	// allowed is limits.reserved of the policy of, and guaranteed names what is bounded by the guarantee instead.
	allowed    slice.Amounts
	guaranteed map[corev1.ResourceName]bool
	of         *policy.Policy
}

// tenantShare is what one namespace counts with.
type tenantShare struct {
	// counted is what it has, admitted what it was admitted to and may have by now.
	counted, admitted demand
}

// refusedShare is what a namespace was refused.
type refusedShare struct {
	wants demand
	// number orders refusals by age.
	number int64
	// told is the last message that was recorded as an Event, because there is no NamespacePlacement to hold it.
	told string
}

// demand is what a NamespacePlacement takes of the limits. The zero demand is that of none.
type demand struct {
	amounts slice.Amounts
	slices  int64
	// placements is 1 for a NamespacePlacement, whatever it asks for.
	placements int64
}

// demandOf returns what a NamespacePlacement takes, nil for one that does not exist: the larger of what it asks for and
// what is reserved for it, other placements that were requested included. One that is being deleted asks for nothing
// any more.
func demandOf(np *schedulerv1alpha1.NamespacePlacement) demand {
	if np == nil {
		return demand{}
	}
	has := demand{amounts: placement.Reserved(np.Status.Placements), placements: 1}
	for i := range np.Status.Placements {
		has.slices += int64(np.Status.Placements[i].Slices)
	}
	if np.DeletionTimestamp != nil {
		return has
	}
	has.amounts = has.amounts.Plus(placement.Added(np))
	return has.larger(demandOfSpec(&np.Spec))
}

// demandOfSpec returns what a NamespacePlacement with that spec takes.
func demandOfSpec(spec *schedulerv1alpha1.NamespacePlacementSpec) demand {
	quota := slice.Of(spec.Quota)
	return demand{amounts: quota, slices: slice.Count(quota, slice.Of(spec.Slice)), placements: 1}
}

func (d demand) larger(other demand) demand {
	return demand{
		amounts:    d.amounts.Plus(other.amounts.Minus(d.amounts)),
		slices:     max(d.slices, other.slices),
		placements: max(d.placements, other.placements),
	}
}

func (s tenantShare) demand() demand {
	if s.admitted.placements == 0 {
		return s.counted
	}
	return s.counted.larger(s.admitted)
}

// NewLimits returns the account of a tenant that has nothing yet.
func NewLimits(ref *policy.Ref) *Limits {
	return &Limits{
		policy: ref, known: map[string]tenantShare{}, total: map[corev1.ResourceName]*big.Int{},
		refused: map[string]refusedShare{}, above: map[string]bool{},
	}
}

// Bind sets what is called with a namespace that is to be reconciled again because there is room for it now. It must
// not block.
func (l *Limits) Bind(enqueue func(namespace string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enqueue = enqueue
}

// Fill counts all NamespacePlacements of the tenant, the first time that it is called.
func (l *Limits) Fill(list func() ([]schedulerv1alpha1.NamespacePlacement, error)) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.filled {
		return nil
	}
	placements, err := list()
	if err != nil {
		return err
	}
	for i := range placements {
		l.set(placements[i].Name, tenantShare{counted: demandOf(&placements[i])})
	}
	l.filled = true
	return nil
}

// read counts a NamespacePlacement as it was read, nil for none, and keeps what its namespace was admitted to: that may
// be written by now.
func (l *Limits) read(namespace string, np *schedulerv1alpha1.NamespacePlacement) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	share := l.known[namespace]
	share.counted = demandOf(np)
	if l.set(namespace, share) {
		l.wake()
	}
}

// wrote counts a NamespacePlacement as it is after a write, nil for none. Nothing else of the namespace is on its way.
func (l *Limits) wrote(namespace string, np *schedulerv1alpha1.NamespacePlacement) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set(namespace, tenantShare{counted: demandOf(np)}) {
		l.wake()
	}
}

// forget drops what a namespace was refused: it does not exist any more, or asks for nothing.
func (l *Limits) forget(namespace string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refused, namespace)
	delete(l.above, namespace)
}

// admit returns the zero Reason, and counts what a namespace wants, if all that grows of it is within the limits; a
// Reason with which it has what it wants is ReasonAboveTenantLimit. has is what the namespace has beside what was read
// of it. Where it is refused, bind's function is called once there is room, and exists is whether it may have a
// NamespacePlacement at all.
func (l *Limits) admit(namespace string, wants, has demand) (reason tenancy.Reason, exists bool) {
	if l == nil {
		return tenancy.Reason{}, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	share := l.known[namespace]
	share.counted = share.counted.larger(has)
	l.set(namespace, share)
	if message := l.short(namespace, wants); message != "" {
		refusal, again := l.refused[namespace]
		if !again {
			l.serial++
			refusal.number = l.serial
		}
		refusal.wants = wants
		l.refused[namespace] = refusal
		empty := demand{placements: 1}
		if exists = l.short(namespace, empty) == ""; exists && share.admitted.placements == 0 {
			share.admitted = empty
			l.set(namespace, share)
		}
		return tenancy.Reason{Reason: schedulerv1alpha1.ReasonTenantLimit, Message: message}, exists
	}
	delete(l.refused, namespace)
	share.admitted = wants
	l.set(namespace, share)
	if message := l.exceeded(namespace); message != "" {
		l.above[namespace] = true
		return tenancy.Reason{Reason: schedulerv1alpha1.ReasonAboveTenantLimit, Message: message}, true
	}
	delete(l.above, namespace)
	return tenancy.Reason{}, true
}

// Request gives np the status with a request for other placements, unless why says that it is refused, and counts what
// it adds. It returns why it is refused, "" if it is not: also where the tenant would reserve more than it may while
// the namespace has both, for pods that nobody can evict would use both.
func (l *Limits) Request(np *schedulerv1alpha1.NamespacePlacement, asked schedulerv1alpha1.NamespacePlacementStatus, why string) string {
	if why != "" {
		return why
	}
	before := np.Status
	np.Status = asked
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	share, wants := l.known[np.Name], demandOf(np)
	if why = l.short(np.Name, wants); why != "" {
		np.Status = before
		return why
	}
	share.admitted = share.demand().larger(wants)
	l.set(np.Name, share)
	return ""
}

// tell returns whether a refusal of a namespace without a NamespacePlacement is to be recorded: its message is another
// than the last one.
func (l *Limits) tell(namespace, message string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	refusal, exists := l.refused[namespace]
	isNew := exists && refusal.told != message
	refusal.told = message
	if exists {
		l.refused[namespace] = refusal
	}
	return isNew
}

// All returns the namespaces that are counted or refused, sorted.
func (l *Limits) All() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := maps.Clone(l.above)
	for name := range l.known {
		names[name] = true
	}
	for name := range l.refused {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// short returns why a namespace cannot have what it wants, "" if it can. What it has already, it keeps: only what grows
// is held against the limits. The caller holds mu.
func (l *Limits) short(namespace string, wants demand) string {
	current := l.policy.Get()
	limits, has := &current.Spec().Limits, l.known[namespace].demand()
	sentence := func(what, field string, would, limit any) string {
		return fmt.Sprintf("%s %v, and %v are allowed (%s of TenantPolicy %s): what the namespace has stays as it is",
			what, would, limit, field, current.Name())
	}
	if would := l.placements - has.placements + wants.placements; wants.placements > has.placements && would > int64(limits.Namespaces) {
		return sentence("The number of the tenant's namespaces with a placement would be", "limits.namespaces", would, limits.Namespaces)
	}
	if would := l.slices - has.slices + wants.slices; wants.slices > has.slices && would > int64(limits.Slices) {
		return sentence("The slices of all namespaces of the tenant would be", "limits.slices", would, limits.Slices)
	}
	allowed := l.reserved(current)
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		if wants.amounts[name] <= has.amounts[name] {
			continue
		}
		would := big.NewInt(wants.amounts[name] - has.amounts[name])
		if sum := l.total[name]; sum != nil {
			would.Add(would, sum)
		}
		if would.Cmp(big.NewInt(allowed[name])) > 0 {
			d := slice.DimensionOf(name)
			return sentence(fmt.Sprintf("All namespaces of the tenant would reserve %s", name), l.boundOf(name),
				d.Quantity(saturated(would)), d.Quantity(allowed[name]))
		}
	}
	return ""
}

// exceeded returns which limit is exceeded by what a namespace and others have already, "" for none: the policy was
// lowered. The caller holds mu.
func (l *Limits) exceeded(namespace string) string {
	current := l.policy.Get()
	limits, has := &current.Spec().Limits, l.known[namespace].demand()
	sentence := func(what, field string, is, limit any) string {
		return fmt.Sprintf("%s %v, and %v are allowed (%s of TenantPolicy %s): nothing that is there is taken away, and nothing can grow",
			what, is, limit, field, current.Name())
	}
	if l.placements > int64(limits.Namespaces) {
		return sentence("The number of the tenant's namespaces with a placement is", "limits.namespaces", l.placements, limits.Namespaces)
	}
	if has.slices > 0 && l.slices > int64(limits.Slices) {
		return sentence("The slices of all namespaces of the tenant are", "limits.slices", l.slices, limits.Slices)
	}
	allowed := l.reserved(current)
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		if sum := l.total[name]; has.amounts[name] > 0 && sum.Cmp(big.NewInt(allowed[name])) > 0 {
			d := slice.DimensionOf(name)
			return sentence(fmt.Sprintf("All namespaces of the tenant reserve %s", name), l.boundOf(name), d.Quantity(saturated(sum)), d.Quantity(allowed[name]))
		}
	}
	return ""
}

// reserved returns limits.reserved of a policy, and what is guaranteed where nothing may be borrowed. The caller holds
// mu.
func (l *Limits) reserved(current *policy.Policy) slice.Amounts {
	if l.of == current {
		return l.allowed
	}
	spec := current.Spec()
	l.of, l.allowed, l.guaranteed = current, slice.Of(spec.Limits.Reserved), map[corev1.ResourceName]bool{}
	for name := range spec.Limits.Reserved {
		l.allowed[name] += 0 // a limit of zero is one
	}
	if spec.Scheduling.Borrowing != tenancyv1alpha1.BorrowingNever {
		return l.allowed
	}
	guaranteed := slice.Of(spec.Scheduling.Guaranteed)
	for name := range spec.Scheduling.Guaranteed {
		if most, isLimited := l.allowed[name]; !isLimited || guaranteed[name] < most {
			l.allowed[name], l.guaranteed[name] = guaranteed[name], true
		}
	}
	return l.allowed
}

// boundOf returns the field of the policy that bounds a resource. The caller holds mu.
func (l *Limits) boundOf(name corev1.ResourceName) string {
	if l.guaranteed[name] {
		return "scheduling.guaranteed"
	}
	return "limits.reserved"
}

// set replaces the share of a namespace. It returns whether anything of it is less than before. The caller holds mu.
func (l *Limits) set(namespace string, share tenantShare) bool {
	old, next := l.known[namespace].demand(), share.demand()
	l.known[namespace] = share
	if next.placements == 0 {
		delete(l.known, namespace)
	}
	l.slices += next.slices - old.slices
	l.placements += next.placements - old.placements
	l.add(old.amounts, -1)
	l.add(next.amounts, 1)
	return next.slices < old.slices || next.placements < old.placements || !old.amounts.Fits(next.amounts)
}

// add adds amounts to total, or takes them away. The caller holds mu.
func (l *Limits) add(amounts slice.Amounts, sign int64) {
	for name, amount := range amounts {
		sum := l.total[name]
		if sum == nil {
			sum = new(big.Int)
			l.total[name] = sum
		}
		sum.Add(sum, new(big.Int).Mul(big.NewInt(amount), big.NewInt(sign)))
		if sum.Sign() == 0 {
			delete(l.total, name)
		}
	}
}

// wake enqueues, in the order in which they were refused, the namespaces for which there is room now, each for itself,
// and those about which nothing is to be reported any more. The caller holds mu.
func (l *Limits) wake() {
	if l.enqueue == nil {
		return
	}
	order := slices.SortedFunc(maps.Keys(l.refused), func(a, b string) int { return cmp.Compare(l.refused[a].number, l.refused[b].number) })
	for _, namespace := range order {
		if l.short(namespace, l.refused[namespace].wants) == "" {
			l.enqueue(namespace)
		}
	}
	for namespace := range l.above {
		if l.exceeded(namespace) == "" {
			l.enqueue(namespace)
		}
	}
}

// saturated returns a sum, at most slice.MaxAmount.
func saturated(sum *big.Int) int64 {
	if sum.Cmp(big.NewInt(slice.MaxAmount)) > 0 {
		return slice.MaxAmount
	}
	return sum.Int64()
}
