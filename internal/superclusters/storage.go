package superclusters

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters/usage"
)

// maxStorageLength bounds what is parsed of a storage annotation.
const maxStorageLength = 32

// declared is what the operator says of a super cluster, in annotations of its Cluster. The zero value says nothing.
type declared struct {
	headroom usage.Headroom
	// storage is how many bytes it can hold for claims of tenants, nil for any number: nodes do not say.
	storage *int64
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

// of returns the capacity of a super cluster of which that is said. Where nothing is said of its storage, none counts.
func (d *declared) of(capacity usage.Capacity) usage.Capacity {
	if d.storage == nil {
		capacity.Beyond, capacity.Committed = capacity.Beyond.OfPods(), capacity.Committed.OfPods()
		return capacity
	}
	capacity.Offered = capacity.Offered.Plus(slice.Amounts{corev1.ResourceStorage: *d.storage})
	return capacity
}
