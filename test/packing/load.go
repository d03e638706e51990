package packing

import (
	"fmt"
	"math"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/slice"
)

// Size is what a pod requests, or a node has: thousandths of a core, and MiB.
type Size struct{ CPU, Memory int64 }

func (s Size) plus(other Size) Size {
	return Size{CPU: s.CPU + other.CPU, Memory: s.Memory + other.Memory}
}

func (s Size) amounts() slice.Amounts {
	return slice.Amounts{corev1.ResourceCPU: s.CPU, corev1.ResourceMemory: s.Memory << 20}
}

// Namespace is what a tenant asks for one namespace.
type Namespace struct {
	Tenant, Name string
	// Pods are in the order of their creation.
	Pods []Size
}

// Quota returns what the pods request together, in whole cores and GiB: a quota that is just large enough.
func (n *Namespace) Quota() slice.Amounts {
	sum := sumOf(n.Pods)
	return slice.Amounts{corev1.ResourceCPU: roundUp(sum.CPU, 1000), corev1.ResourceMemory: roundUp(sum.Memory, 1024) << 20}
}

func sumOf(pods []Size) (sum Size) {
	for _, pod := range pods {
		sum = sum.plus(pod)
	}
	return sum
}

func roundUp(amount, unit int64) int64 { return (amount + unit - 1) / unit * unit }

// Load is how tenants' wishes are distributed.
type Load struct {
	Name string
	// pod draws what one pod requests.
	pod func(*rand.Rand) Size
}

const (
	// tail is the exponent of Pareto distributions: that of what Borg's jobs of 2019 use of cpu (Tirmazi et al., "Borg:
	// the Next Generation", EuroSys 2020; the exponent is from memory), of which the top 1 % take more than 99 %. The
	// same is assumed of quotas, and of small pods.
	tail = 0.69
	// smallestQuota and largestQuota bound it, in cores.
	smallestQuota, largestQuota = 1, 256
	// smallestPod and largestPod bound small pods, in cores.
	smallestPod, largestPod = 0.1, 8
	// halving is how much rarer a virtual machine of twice as many cores is. With 1 to 16 cores that makes 2.89 cores in
	// the mean: 469,439,814 core hours in 162,465,708 hours of the virtual machines of Azure's public dataset of 2019.
	halving = 0.55
	// largestMemory is how much memory a pod may have at most, in MiB: one that is larger than a node is drawn again.
	largestMemory = 64 << 10
	// namespacesOfTenant is how many namespaces a tenant has.
	namespacesOfTenant = 10
)

// Loads are what is measured. Memory goes with cores as in three families of Azure's sizes (F, D and E: 2, 4 and 8 GiB
// each core, from memory), in such parts that a core has about what it has on a node: that part is assumed.
var Loads = []Load{
	{Name: "VMs", pod: func(r *rand.Rand) Size {
		cores := int64(1)
		for draw, part := r.Float64()*(1-math.Pow(halving, 5))/(1-halving), 1.0; draw > part && cores < 16; part *= halving {
			draw -= part
			cores *= 2
		}
		return Size{CPU: 1000 * cores, Memory: cores * memoryOfCore(r)}
	}},
	{Name: "small pods", pod: func(r *rand.Rand) Size {
		cpu := roundUp(int64(1000*pareto(r, smallestPod, largestPod)), 50)
		return Size{CPU: cpu, Memory: max(64, roundUp(cpu*memoryOfCore(r)/1000, 64))}
	}},
}

// draw draws a pod that fits a node.
func (l *Load) draw(r *rand.Rand) Size {
	for {
		if pod := l.pod(r); pod.Memory <= largestMemory {
			return pod
		}
	}
}

// memoryOfCore draws how many MiB a core has.
func memoryOfCore(r *rand.Rand) int64 {
	switch draw := r.Float64(); {
	case draw < 0.45:
		return 2 << 10
	case draw < 0.83:
		return 4 << 10
	default:
		return 8 << 10
	}
}

// pareto draws from a Pareto distribution with exponent tail, cut off at both ends.
func pareto(r *rand.Rand, least, most float64) float64 {
	cut := math.Pow(least/most, tail)
	return least / math.Pow(1-r.Float64()*(1-cut), 1/tail)
}

// Namespaces draws namespaces until they ask for so much together, in either resource. The same seed draws the same.
func (l *Load) Namespaces(seed uint64, most Size) (all []Namespace) {
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it is to draw the same again
	for asked := (Size{}); asked.CPU < most.CPU && asked.Memory < most.Memory; {
		n := Namespace{Tenant: fmt.Sprintf("tenant-%04d", len(all)/namespacesOfTenant), Name: fmt.Sprintf("namespace-%05d", len(all))}
		cpu := int64(1000 * pareto(r, smallestQuota, largestQuota))
		for sum := int64(0); ; {
			pod := l.draw(r)
			if sum += pod.CPU; sum > cpu && len(n.Pods) > 0 {
				break
			}
			n.Pods = append(n.Pods, pod)
		}
		asked = asked.plus(sumOf(n.Pods))
		all = append(all, n)
	}
	return all
}
