package volumehome

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

// ErrReasonNoStorage is the reason of a super cluster where claims of the namespace leave too little of its storage for
// those of the pod that have no home yet.
const ErrReasonNoStorage = "super cluster(s) had too little storage of the namespace left for the pod's claims"

// need is what a pod's claims without a home take of the storage that its namespace holds, computed at PreFilter.
// Nothing changes it.
type need struct {
	// claims are to be given a home, also those for which another pod's cycle has chosen one.
	claims []*corev1.PersistentVolumeClaim
	// bytes is how much those take together for which none is chosen, and left what other claims leave of what the
	// namespace holds, by super cluster.
	bytes int64
	left  map[string]int64
}

// needOf returns what a pod's claims need that have no home yet, nil where that is not judged: there are none, or no
// quota of the namespace names storage, so that no super cluster has any row of it. It refuses the pod if no super
// cluster would have room for them even if there were no other claims.
func (pl *VolumeHome) needOf(pod *corev1.Pod, homeless []*corev1.PersistentVolumeClaim, nodes []fwk.NodeInfo) (*need, *fwk.Status) {
	if len(homeless) == 0 {
		return nil, nil
	}
	held, most := heldIn(pod.Namespace, nodes)
	if len(held) == 0 {
		return nil, nil
	}
	found := &need{left: held}
	var open []*corev1.PersistentVolumeClaim
	for _, claim := range homeless {
		if slices.ContainsFunc(found.claims, func(known *corev1.PersistentVolumeClaim) bool { return known.UID == claim.UID }) {
			continue
		}
		found.claims = append(found.claims, claim)
		if pl.chosen.home(claim) == "" {
			open = append(open, claim)
			found.bytes = min(found.bytes+slice.Size(claim), slice.MaxAmount)
		}
	}
	switch {
	case found.bytes == 0:
		return found, nil
	case found.bytes > most:
		return nil, unresolvable("%s", tooLarge(open, found.bytes, most))
	}
	all, err := pl.claims.PersistentVolumeClaims(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil, fwk.AsStatus(fmt.Errorf("listing claims: %w", err))
	}
	for _, claim := range all {
		home := claimhome.Of(claim)
		if home == "" {
			home = pl.chosen.home(claim)
		}
		if _, holds := held[home]; holds {
			held[home] = max(held[home]-slice.Size(claim), -slice.MaxAmount)
		}
	}
	return found, nil
}

// heldIn returns how much storage a namespace holds in each super cluster, none where its quota names none, and the
// most of it.
func heldIn(namespace string, nodes []fwk.NodeInfo) (held map[string]int64, most int64) {
	held = map[string]int64{}
	for _, node := range nodes {
		if bytes, isNamed := slicepod.Storage(node.Node(), namespace); isNamed {
			held[node.Node().Name] = bytes
			most = max(most, bytes)
		}
	}
	return held, most
}

// tooLarge says why no super cluster has room for claims of so many bytes, and what to do.
func tooLarge(claims []*corev1.PersistentVolumeClaim, bytes, most int64) string {
	d := slice.DimensionOf(corev1.ResourceStorage)
	who := fmt.Sprintf("claim %s requests %s", claims[0].Name, d.Quantity(bytes))
	if len(claims) > 1 {
		who = fmt.Sprintf("the pod's %d claims without a super cluster request %s together", len(claims), d.Quantity(bytes))
	}
	return fmt.Sprintf("%s, and the namespace holds at most %s of storage in one super cluster: %s", who, d.Quantity(most), slicepod.LargerStorage)
}
