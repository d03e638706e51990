package usage

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/superpool/superpool/internal/slice"
)

// maxStorageLength bounds what is parsed of a storage annotation.
const maxStorageLength = 32

// Declared is what the operator says of a super cluster, in annotations of its Cluster. The zero value says nothing.
type Declared struct {
	Headroom Headroom
	// Storage is how many bytes it can hold for claims of tenants, nil for any number: nodes do not say.
	Storage *int64
}

// ParseStorage reads a storage annotation: a quantity. "" is nil: the super cluster takes any amount.
func ParseStorage(text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxStorageLength {
		return nil, fmt.Errorf("storage is longer than %d characters", maxStorageLength)
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return nil, fmt.Errorf("storage is %q: want a quantity such as 10Ti", text)
	}
	amounts, errs := slice.FromList(corev1.ResourceList{corev1.ResourceStorage: quantity}, field.NewPath("storage"))
	if err := errs.ToAggregate(); err != nil {
		return nil, err
	}
	bytes := amounts[corev1.ResourceStorage]
	return &bytes, nil
}

// Of returns the capacity of a super cluster of which that is said. Where nothing is said of its storage, none counts.
func (d *Declared) Of(capacity Capacity) Capacity {
	if d.Storage == nil {
		capacity.Beyond, capacity.Committed = capacity.Beyond.OfPods(), capacity.Committed.OfPods()
		return capacity
	}
	capacity.Offered = capacity.Offered.Plus(slice.Amounts{corev1.ResourceStorage: *d.Storage})
	return capacity
}

// Overcommit returns what is committed beyond what a super cluster of that capacity (Of) can hold for tenants, headroom
// kept, and what it can hold.
func (d *Declared) Overcommit(capacity *Capacity) (excess, room slice.Amounts) {
	room = d.Headroom.Apply(capacity.Offered)
	return capacity.Committed.Minus(room), room
}
