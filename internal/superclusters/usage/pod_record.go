package usage

import (
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// PodRecord is what the informer of pods keeps of a pod, and the ledger counts: a super cluster can have 100,000 of
// them. It is never changed.
type PodRecord struct {
	// ObjectMeta holds namespace, name, UID and resource version, which informers need, and nothing else.
	metav1.ObjectMeta
	// node is the name of its node, "" before it has one.
	node string
	// owner is the key of the NamespacePlacement of the tenant's namespace whose pod it is, the zero Handle for a
	// foreign pod, which the pool did not make.
	owner unique.Handle[types.NamespacedName]
	// taken is what it takes of its node, without zeros.
	taken []takenAmount
}

// maxOfPod is the most that one pod counts of a resource, 2^45: more than any node has, and little enough that 200,000
// pods add up without overflow.
const maxOfPod = int64(1) << 45

type takenAmount struct {
	resource corev1.ResourceName
	amount   int64
}

// recordOf returns the record of a pod. Of a pod that is being resized it counts the larger of what it requests and
// what is allocated.
func recordOf(pod *corev1.Pod) *PodRecord {
	record := &PodRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: Intern(pod.Namespace), Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion},
		node:       Intern(pod.Spec.NodeName),
	}
	if owner, ours := tenancy.GetOwner(pod); ours {
		record.owner = unique.Make(placementKey(&owner))
	}
	amounts := slice.Taken(pod, slice.Reading{Status: true, Pods: true})
	record.taken = make([]takenAmount, 0, len(amounts))
	for _, name := range amounts.Names() {
		if amounts[name] != 0 {
			record.taken = append(record.taken, takenAmount{corev1.ResourceName(Intern(string(name))), min(amounts[name], maxOfPod)})
		}
	}
	return record
}

// Intern returns text, in memory once however many records have it.
func Intern(text string) string { return unique.Make(text).Value() }

// placementKey returns the key of the NamespacePlacement of a tenant's namespace.
func placementKey(owner *tenancy.Owner) types.NamespacedName {
	return types.NamespacedName{Namespace: owner.ClusterKey, Name: owner.Namespace}
}

// isForeign returns whether the pool did not make the pod.
func (r *PodRecord) isForeign() bool { return r.owner == unique.Handle[types.NamespacedName]{} }

// counts returns whether two records of one pod count alike.
func (r *PodRecord) counts(other *PodRecord) bool {
	return r.node == other.node && r.owner == other.owner && slices.Equal(r.taken, other.taken)
}

// add adds sign times what the pod takes to amounts. Zeros are dropped.
func (r *PodRecord) add(amounts slice.Amounts, sign int64) {
	for _, taken := range r.taken {
		if amounts[taken.resource] += sign * taken.amount; amounts[taken.resource] == 0 {
			delete(amounts, taken.resource)
		}
	}
}

// TrimPod is the transform of informers of pods: it returns their PodRecord, and any other object as it is.
func TrimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return recordOf(pod), nil
}
