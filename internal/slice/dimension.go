package slice

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
)

// Dimension holds the properties of one resource. Dimensions are values without state; DimensionOf and
// DimensionOfQuotaKey look them up.
type Dimension struct {
	// Name is the resource, as containers request it.
	Name corev1.ResourceName
	// QuotaKey is the key of ResourceQuota's hard limits that bounds it, "" if no quota does.
	QuotaKey corev1.ResourceName
	// Scale is the unit of its amounts as a power of ten: thousandths of a core for cpu, bytes or pieces for all
	// others.
	Scale resource.Scale
	// Format is how its quantities are written: 100Mi or 3.
	Format resource.Format
	// OfPod returns what a pod takes of it. Nil: what the pod's containers request, by kube-scheduler's rules.
	OfPod func(pod *corev1.Pod) int64
	// OfClaims is true where PersistentVolumeClaims take it, and no pod does: deleting pods frees none of it, and no
	// node has any. It is there only where a quota names it.
	OfClaims bool
}

// row declares a Dimension, or all those whose names begin alike.
type row struct {
	Dimension
	// family is true where Name is a prefix of the names.
	family bool
	// bare is true where the name itself is a key of quotas, too: cpu is requests.cpu.
	bare bool
}

// rows is the table of resources. The last row is that of every resource which no other one names: extended resources.
//
// Each pod takes one of the resource pods, whatever it requests.
var rows = [...]row{
	{bare: true, Dimension: Dimension{Name: corev1.ResourceCPU, QuotaKey: corev1.ResourceRequestsCPU, Scale: resource.Milli, Format: resource.DecimalSI}},
	{bare: true, Dimension: Dimension{Name: corev1.ResourceMemory, QuotaKey: corev1.ResourceRequestsMemory, Format: resource.BinarySI}},
	{bare: true, Dimension: Dimension{Name: corev1.ResourceEphemeralStorage, QuotaKey: corev1.ResourceRequestsEphemeralStorage, Format: resource.BinarySI}},
	{Dimension: Dimension{
		Name: corev1.ResourcePods, QuotaKey: corev1.ResourcePods, Format: resource.DecimalSI,
		OfPod: func(*corev1.Pod) int64 { return 1 },
	}},
	{Dimension: Dimension{Name: corev1.ResourceStorage, QuotaKey: corev1.ResourceRequestsStorage, Format: resource.BinarySI, OfClaims: true}},
	{family: true, bare: true, Dimension: Dimension{Name: corev1.ResourceHugePagesPrefix, Format: resource.BinarySI}},
	{family: true, Dimension: Dimension{Format: resource.DecimalSI}},
}

// rowOf returns the row that declares a resource. The row belongs to the table.
func rowOf(name corev1.ResourceName) *row {
	for i := range rows {
		if r := &rows[i]; r.Name == name || r.family && strings.HasPrefix(string(name), string(r.Name)) {
			return r
		}
	}
	return &rows[len(rows)-1]
}

// DimensionOf returns the Dimension of a resource. A name that is no valid resource yields an extended resource that no
// quota can bound.
func DimensionOf(name corev1.ResourceName) Dimension {
	r := rowOf(name)
	if !r.family {
		return r.Dimension
	}
	d := r.Dimension
	d.Name = name
	d.QuotaKey = corev1.DefaultResourceRequestsPrefix + name
	return d
}

// countPods is the key of ResourceQuota's hard limits that bounds all pods, those that have ended included. Those do
// not count here.
const countPods corev1.ResourceName = "count/pods"

// DimensionOfQuotaKey returns the resource that a key of ResourceQuota's hard limits bounds: cpu for cpu and
// requests.cpu, nvidia.com/gpu for requests.nvidia.com/gpu, storage for requests.storage, pods for pods and count/pods.
// It returns false for a key that bounds something else, as those of single StorageClasses do.
func DimensionOfQuotaKey(key corev1.ResourceName) (Dimension, bool) {
	if key == countPods {
		key = corev1.ResourcePods
	}
	name := corev1.ResourceName(strings.TrimPrefix(string(key), corev1.DefaultResourceRequestsPrefix))
	r, d := rowOf(name), DimensionOf(name)
	bounds := key == d.QuotaKey || r.bare && key == name
	if !bounds || r == &rows[len(rows)-1] && !v1helper.IsExtendedResourceName(name) {
		return Dimension{}, false
	}
	return d, true
}

// IsResource reports whether a quota can bound a resource of that name. The keys of quotas are no resources:
// requests.cpu bounds cpu, and count/secrets bounds objects.
func IsResource(name corev1.ResourceName) bool {
	bounded, known := DimensionOfQuotaKey(DimensionOf(name).QuotaKey)
	return known && bounded.Name == name && !strings.HasPrefix(string(name), "count/")
}

// Quantity returns an amount of the resource as Kubernetes prints it.
func (d *Dimension) Quantity(amount int64) *resource.Quantity {
	if d.Scale == resource.Milli {
		return resource.NewMilliQuantity(amount, d.Format)
	}
	return resource.NewQuantity(amount, d.Format)
}

// IsExtended reports whether a resource is an extended one: counted in pieces, and there only where a quota names it.
func IsExtended(name corev1.ResourceName) bool {
	return rowOf(name) == &rows[len(rows)-1]
}

// pageOf returns the size of a huge page in bytes, 0 if the resource is no huge pages or its name is no size.
func pageOf(name corev1.ResourceName) int64 {
	if !v1helper.IsHugePageResourceName(name) {
		return 0
	}
	page, err := v1helper.HugePageSizeFromResourceName(name)
	if err != nil || page.Sign() <= 0 || ExceedsMax(name, page) {
		return 0
	}
	return page.Value()
}

// isBytes reports whether the resource is counted in bytes.
func (d *Dimension) isBytes() bool {
	return d.Format == resource.BinarySI
}

// amount returns a quantity in the unit of the resource, rounded up.
func (d *Dimension) amount(quantity resource.Quantity) int64 {
	return quantity.ScaledValue(d.Scale)
}

// OfPods returns what of a pods can take: all but what claims do.
func (a Amounts) OfPods() Amounts {
	of := make(Amounts, len(a))
	for name, amount := range a {
		if !rowOf(name).OfClaims {
			of[name] = amount
		}
	}
	return of
}

// OfClaims returns what of a claims take.
func (a Amounts) OfClaims() Amounts { return a.Minus(a.OfPods()) }

// Size returns how much storage a claim takes: the largest of what it requests, what is allocated for it while it is
// expanded, and what its volume has. It is at most MaxAmount.
func Size(claim *corev1.PersistentVolumeClaim) (bytes int64) {
	for _, list := range []corev1.ResourceList{claim.Spec.Resources.Requests, claim.Status.AllocatedResources, claim.Status.Capacity} {
		bytes = max(bytes, Bytes(list[corev1.ResourceStorage]))
	}
	return bytes
}

// Bytes returns a size of storage in bytes, as Of does: at least 0 and at most MaxAmount.
func Bytes(size resource.Quantity) int64 {
	return Of(corev1.ResourceList{corev1.ResourceStorage: size})[corev1.ResourceStorage]
}

// Reading selects what Taken counts of a pod. The zero value counts the requests of its spec.
type Reading struct {
	// Status counts what the kubelet has allocated, too: a pod that is resized in place takes the larger of what it
	// requests and what is still allocated.
	Status bool
	// Pods counts what a pod takes without a request (Dimension.OfPod): one of the resource pods.
	Pods bool
}

// Taken returns what a pod takes of its node by kube-scheduler's rules: init containers, sidecars, overhead, pod-level
// requests. Amounts are at most MaxAmount each. Of what kubelets of 1.36 say that they have allocated, overhead is a
// part, and counts twice, as it does for kube-scheduler (kubernetes/kubernetes#139627).
func Taken(pod *corev1.Pod, reading Reading) Amounts {
	taken := Of(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		UseStatusResources: reading.Status, InPlacePodLevelResourcesVerticalScalingEnabled: reading.Status,
	}))
	if !reading.Pods {
		return taken
	}
	for i := range rows {
		if d := &rows[i].Dimension; d.OfPod != nil {
			taken[d.Name] = d.OfPod(pod)
		}
	}
	return taken
}
