package volumehome

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

// ErrReasonNoStorage is the reason of a super cluster where claims of the namespace leave too little of its storage for
// those of the pod that have no home yet.
const ErrReasonNoStorage = "super cluster(s) with too little storage of the namespace left for the pod's claims"

// need is what a pod's claims without a home take of the storage that its namespace holds, computed at PreFilter.
// Nothing changes it.
type need struct {
	// claims are to be given a home.
	claims []*corev1.PersistentVolumeClaim
	// bytes is how much they take together, and left what other claims leave of what the namespace holds, by super
	// cluster.
	bytes int64
	left  map[string]int64
}

// needOf returns what a pod's claims need that have no home yet, nil where that is not judged: they need nothing, or no
// quota of the namespace names storage, so that no super cluster has any row of it. It refuses the pod if no super
// cluster would have room for them even if there were no other claims.
func (pl *VolumeHome) needOf(pod *corev1.Pod, homeless []*corev1.PersistentVolumeClaim, nodes []fwk.NodeInfo) (*need, *fwk.Status) {
	held, most := heldIn(pod.Namespace, nodes)
	if len(held) == 0 {
		return nil, nil
	}
	found := &need{left: held}
	for _, claim := range homeless {
		isKnown := slices.ContainsFunc(found.claims, func(known *corev1.PersistentVolumeClaim) bool { return known.UID == claim.UID })
		if pl.chosen.home(claim.UID) == "" && !isKnown {
			found.claims = append(found.claims, claim)
			found.bytes = min(found.bytes+slice.Size(claim), slice.MaxAmount)
		}
	}
	switch {
	case found.bytes == 0:
		return nil, nil
	case found.bytes > most:
		return nil, unresolvable("%s", tooLarge(found, most))
	}
	all, err := pl.claims.PersistentVolumeClaims(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil, fwk.AsStatus(fmt.Errorf("listing claims: %w", err))
	}
	for _, claim := range all {
		home := claimhome.Of(claim)
		if home == "" {
			home = pl.chosen.home(claim.UID)
		}
		if _, holds := held[home]; holds {
			held[home] -= slice.Size(claim)
		}
	}
	return found, nil
}

// heldIn returns how much storage a namespace holds in each super cluster, none where its quota names none, and the
// most of it.
func heldIn(namespace string, nodes []fwk.NodeInfo) (held map[string]int64, most int64) {
	held = map[string]int64{}
	name := slicepod.Resource(corev1.ResourceStorage, namespace)
	for _, node := range nodes {
		if quantity, isNamed := node.Node().Status.Allocatable[name]; isNamed {
			held[node.Node().Name] = quantity.Value()
			most = max(most, quantity.Value())
		}
	}
	return held, most
}

// tooLarge says why no super cluster has room for claims, and what to do.
func tooLarge(found *need, most int64) string {
	d := slice.DimensionOf(corev1.ResourceStorage)
	who := fmt.Sprintf("claim %s requests %s", found.claims[0].Name, d.Quantity(found.bytes))
	if len(found.claims) > 1 {
		who = fmt.Sprintf("the pod's %d claims without a super cluster request %s together", len(found.claims), d.Quantity(found.bytes))
	}
	return fmt.Sprintf("%s, and the namespace holds at most %s of storage in one super cluster: larger slices, or storage in annotation %s of the namespace, make larger pieces",
		who, d.Quantity(most), schedulerv1alpha1.AnnotationSlice)
}
