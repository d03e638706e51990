package volumehome

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/superpool/superpool/internal/claimhome"
)

// State holds the homes that claims were given and that the informer does not show yet, so that two pods in a row do
// not get the last room of one super cluster. The profiles of one scheduler share it. It is safe for concurrent use.
//
// A claim is in it from Reserve until Unreserve, or until a later Reserve finds that its entry does not count any more:
// the informer shows the home, or what became of it. So there are about as many as claims are being written.
type State struct {
	mu    sync.Mutex
	homes map[types.UID]*choice
}

// choice is the home that was chosen for one claim.
type choice struct {
	claim types.NamespacedName
	home  string
	// pods are those that were reserved with it.
	pods sets.Set[types.UID]
	// version is the resourceVersion of the claim onto which PreBind writes the home, "" before.
	version string
}

// NewState returns an empty state.
func NewState() *State { return &State{homes: map[types.UID]*choice{}} }

// counts reports whether the informer, which shows the claim so, does not show the home yet. The patch of PreBind has
// the resourceVersion as precondition: where the informer shows another one it is past the patch, and a claim without a
// home has lost it.
func (c *choice) counts(claim *corev1.PersistentVolumeClaim) bool {
	return claimhome.Of(claim) == "" && (c.version == "" || c.version == claim.ResourceVersion)
}

// home returns the home that was chosen for a claim, which the informer shows so, "" for none.
func (s *State) home(claim *corev1.PersistentVolumeClaim) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if chosen := s.homes[claim.UID]; chosen != nil && chosen.counts(claim) {
		return chosen.home
	}
	return ""
}

// add notes that a pod brings claims to a home, and forgets those that do not count any more. One that another pod
// brings elsewhere stays as it is: then this pod fails, for its claims have two homes.
func (s *State) add(pod types.UID, home string, claims []*corev1.PersistentVolumeClaim, known corev1listers.PersistentVolumeClaimLister) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, chosen := range s.homes {
		claim, err := known.PersistentVolumeClaims(chosen.claim.Namespace).Get(chosen.claim.Name)
		if err != nil || claim.UID != uid || !chosen.counts(claim) {
			delete(s.homes, uid)
		}
	}
	for _, claim := range claims {
		chosen := s.homes[claim.UID]
		if chosen == nil {
			chosen = &choice{claim: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, home: home, pods: sets.New[types.UID]()}
			s.homes[claim.UID] = chosen
		}
		chosen.pods.Insert(pod)
	}
}

// writing notes that PreBind has read a claim, onto which it writes the home if it has none.
func (s *State) writing(claim *corev1.PersistentVolumeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if chosen := s.homes[claim.UID]; chosen != nil {
		chosen.version = claim.ResourceVersion
	}
}

// remove takes back what add noted of a pod.
func (s *State) remove(pod types.UID, claims []*corev1.PersistentVolumeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, claim := range claims {
		chosen := s.homes[claim.UID]
		if chosen == nil || !chosen.pods.Has(pod) {
			continue
		}
		if chosen.pods.Delete(pod); chosen.pods.Len() == 0 {
			delete(s.homes, claim.UID)
		}
	}
}
