// Package proof proves that something is gone before something else is deleted because of it. An API server that does
// not have an object proves nothing by itself: behind its address there may be another control plane, where nothing is.
// So each proof is a live read of the object, and then, in the same breath, the UID of the control plane that answers.
package proof

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrOther is the error for an answer of a control plane that is not known to be the one that was asked: what it lacks
// proves nothing.
var ErrOther = errors.New("another control plane answered")

// ErrUnserved is the error for the answer of a control plane that does not serve the type of an object: another version
// of the type may be served, or the same again in a moment, and the object be there.
var ErrUnserved = errors.New("the type is not served")

// Proof is why a deletion may be done. Only this package makes one that holds; the zero Proof does not.
type Proof struct{ reason string }

// Holds returns whether the deletion may be done.
func (p Proof) Holds() bool { return p.reason != "" }

// String returns the reason.
func (p Proof) String() string { return p.reason }

// NotNeeded returns a Proof for a deletion that does not follow from the absence of anything: reason says from what it
// does.
func NotNeeded(reason string) Proof { return Proof{reason: reason} }

// And returns a Proof that holds if both do.
func (p Proof) And(other Proof) Proof {
	if !p.Holds() || !other.Holds() {
		return Proof{}
	}
	return Proof{reason: p.reason + ", " + other.reason}
}

// ControlPlane is a control plane that is known by its UID. Its methods send requests and keep nothing.
type ControlPlane struct {
	// Name is for messages: "the tenant".
	Name string
	// Reader reads it live, without a cache.
	Reader client.Reader
	// UID is that of its namespace kube-system, as it was recorded before; "" proves nothing.
	UID types.UID
}

// Lacks returns whether the control plane has no object of that name for which is returns true, and if so a Proof of
// that. It reads the object into object; is is called when there is one, nil stands for a function that returns true.
// Where the type of the object is not served, the error is ErrUnserved.
func (c *ControlPlane) Lacks(ctx context.Context, name types.NamespacedName, object client.Object, is func() bool) (Proof, bool, error) {
	err := c.Reader.Get(ctx, name, object)
	switch {
	case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return Proof{}, false, fmt.Errorf("reading %T %s of %s: %w: %w", object, name, c.Name, ErrUnserved, err)
	case err != nil && !apierrors.IsNotFound(err):
		return Proof{}, false, fmt.Errorf("reading %T %s of %s: %w", object, name, c.Name, err)
	case err == nil && (is == nil || is()):
		return Proof{}, false, nil
	}
	proof, err := c.Answered(ctx, fmt.Sprintf("%s lacks %T %s", c.Name, object, name))
	return proof, err == nil, err
}

// LacksAll is Lacks for the objects of a list. It reads at most one of them into list.
func (c *ControlPlane) LacksAll(ctx context.Context, list client.ObjectList, options ...client.ListOption) (Proof, bool, error) {
	if err := c.Reader.List(ctx, list, append(options, client.Limit(1))...); err != nil {
		return Proof{}, false, fmt.Errorf("listing %T of %s: %w", list, c.Name, err)
	}
	if meta.LenList(list) > 0 {
		return Proof{}, false, nil
	}
	proof, err := c.Answered(ctx, fmt.Sprintf("%s lacks %T", c.Name, list))
	return proof, err == nil, err
}

// Answered returns a Proof of what live reads have shown, if the control plane is the one that answers now. Call it
// right after those reads; reason says what they have shown.
func (c *ControlPlane) Answered(ctx context.Context, reason string) (Proof, error) {
	system := &corev1.Namespace{}
	// From etcd, as the reads before: what an API server has in memory may be of the etcd that it had yesterday.
	if err := c.Reader.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return Proof{}, fmt.Errorf("reading namespace %s of %s: %w", metav1.NamespaceSystem, c.Name, err)
	}
	return Compare(c.Name, c.UID, system.UID, reason)
}

// Compare returns a Proof if found, the UID of the control plane that answered, is the known one, else ErrOther. Others
// than ControlPlane read the UID themselves, right after what reason says.
func Compare(name string, known, found types.UID, reason string) (Proof, error) {
	if known == "" || found != known {
		return Proof{}, fmt.Errorf("%w: its namespace %s has UID %s, and that of %s has %q", ErrOther, metav1.NamespaceSystem, found, name, known)
	}
	return Proof{reason: reason}, nil
}
