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
// A claim is in it from Reserve until a later Reserve finds that the informer shows a home, or no such claim, or until
// Unreserve. So there are about as many as claims are being written.
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
}

// NewState returns an empty state.
func NewState() *State { return &State{homes: map[types.UID]*choice{}} }

// home returns the home that was chosen for a claim, "" for none.
func (s *State) home(claim types.UID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if chosen := s.homes[claim]; chosen != nil {
		return chosen.home
	}
	return ""
}

// add notes that a pod brings claims to a home, and forgets claims that the informer has caught up with. One that
// another pod brings elsewhere stays as it is: then this pod fails, for its claims have two homes.
func (s *State) add(pod types.UID, home string, claims []*corev1.PersistentVolumeClaim, known corev1listers.PersistentVolumeClaimLister) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, chosen := range s.homes {
		claim, err := known.PersistentVolumeClaims(chosen.claim.Namespace).Get(chosen.claim.Name)
		if err != nil || claim.UID != uid || claimhome.Of(claim) != "" {
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
