// Package proof proves that something is gone before something else is deleted because of it. An API server that does
// not have an object proves nothing by itself: behind its address there may be another control plane, where nothing is.
// So each proof that something is absent is a live read between two others, of the UID of the control plane that
// answers: asked afterwards alone, the right one vouches for what another has said, when both change places behind an
// address.
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
	return Absent(ctx, c.Name, c.UID, c.uid, fmt.Sprintf("%s lacks %T %s", c.Name, object, name), func(ctx context.Context) (bool, error) {
		err := c.Reader.Get(ctx, name, object)
		switch {
		case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
			return false, fmt.Errorf("reading %T %s of %s: %w: %w", object, name, c.Name, ErrUnserved, err)
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("reading %T %s of %s: %w", object, name, c.Name, err)
		}
		return is == nil || is(), nil
	})
}

// LacksAll is Lacks for the objects of a list. It reads at most one of them into list.
func (c *ControlPlane) LacksAll(ctx context.Context, list client.ObjectList, options ...client.ListOption) (Proof, bool, error) {
	return Absent(ctx, c.Name, c.UID, c.uid, fmt.Sprintf("%s lacks %T", c.Name, list), func(ctx context.Context) (bool, error) {
		if err := c.Reader.List(ctx, list, append(options, client.Limit(1))...); err != nil {
			return false, fmt.Errorf("listing %T of %s: %w", list, c.Name, err)
		}
		return meta.LenList(list) > 0, nil
	})
}

// Answered returns a Proof of what live reads have shown to be there, if the control plane is the one that answers now.
// Call it right after those reads; reason says what they have shown. For what they have not shown there is Lacks.
func (c *ControlPlane) Answered(ctx context.Context, reason string) (Proof, error) {
	found, err := c.uid(ctx)
	if err != nil {
		return Proof{}, err
	}
	return compare(c.Name, c.UID, found, reason)
}

// uid reads the UID of the control plane that answers, from etcd, as the reads of proofs: what an API server has in
// memory may be of the etcd that it had yesterday.
func (c *ControlPlane) uid(ctx context.Context) (types.UID, error) {
	system := &corev1.Namespace{}
	if err := c.Reader.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", fmt.Errorf("reading namespace %s of %s: %w", metav1.NamespaceSystem, c.Name, err)
	}
	return system.UID, nil
}

// Absent returns whether has, a live read of a control plane, finds nothing, and if so a Proof of that: before and
// after it, uid has read the UID of the control plane that answers, and that is known. Otherwise the error is ErrOther.
// What has finds needs no Proof, and another control plane is no error then. name is for messages, reason says what is
// absent.
func Absent(ctx context.Context, name string, known types.UID, uid func(context.Context) (types.UID, error), reason string, has func(context.Context) (bool, error)) (Proof, bool, error) {
	before, err := uid(ctx)
	if err != nil {
		return Proof{}, false, err
	}
	found, err := has(ctx)
	if err != nil || found {
		return Proof{}, false, err
	}
	if _, err := compare(name, known, before, reason); err != nil {
		return Proof{}, false, err
	}
	after, err := uid(ctx)
	if err != nil {
		return Proof{}, false, err
	}
	proven, err := compare(name, known, after, reason)
	return proven, err == nil, err
}

// compare returns a Proof if found, the UID of the control plane that answered, is the known one, else ErrOther.
func compare(name string, known, found types.UID, reason string) (Proof, error) {
	if known == "" || found != known {
		return Proof{}, fmt.Errorf("%w: its namespace %s has UID %s, and that of %s has %q", ErrOther, metav1.NamespaceSystem, found, name, known)
	}
	return Proof{reason: reason}, nil
}
