// Package freestorage says how large a volume a super cluster can make of each StorageClass, as its CSI drivers publish
// it. That is what the pod schedulers of tenants know of its storage.
//
// Everything here is pure: no clients, no clock, no logging.
package freestorage

import (
	"encoding/json"
	"maps"
	"math/bits"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/slice"
)

const (
	// MaxClasses bounds the StorageClasses of a super cluster, the first by name: of others nothing is known.
	MaxClasses = 64
	// MaxLength bounds the text that is read, in bytes: a longer one counts as none.
	MaxLength = 32 << 10
	// digits is how many binary digits of a size are kept: what is published is less than 1/64 below what there is.
	digits = 7
)

// Sizes are the largest volumes by StorageClass, in bytes. A class that is not among them has no bound that anybody
// knows. They are not changed once they are made. Nil has none.
type Sizes map[string]int64

// Of returns the sizes of what an API server has: of each class whose driver publishes what is free the largest volume
// that any of the class's objects has room for, rounded down, so that it does not change with each volume that is made.
func Of(drivers []*storagev1.CSIDriver, classes []*storagev1.StorageClass, capacities []*storagev1.CSIStorageCapacity) Sizes {
	publishing := map[string]bool{}
	for _, driver := range drivers {
		publishing[driver.Name] = ptr.Deref(driver.Spec.StorageCapacity, false)
	}
	var names []string
	for _, class := range classes {
		if publishing[class.Provisioner] {
			names = append(names, class.Name)
		}
	}
	slices.Sort(names)
	sizes := Sizes{}
	for _, name := range names[:min(len(names), MaxClasses)] {
		sizes[name] = 0
	}
	for _, capacity := range capacities {
		known, published := sizes[capacity.StorageClassName]
		if published && capacity.NodeTopology != nil { // without it no node reaches the storage
			sizes[capacity.StorageClassName] = max(known, rounded(largest(capacity)))
		}
	}
	return sizes
}

// largest returns the largest volume that an object has room for, as VolumeBinding reads it. Drivers may write
// quantities with any exponent.
func largest(capacity *storagev1.CSIStorageCapacity) int64 {
	switch {
	case capacity.MaximumVolumeSize != nil:
		return slice.Bytes(*capacity.MaximumVolumeSize)
	case capacity.Capacity != nil:
		return slice.Bytes(*capacity.Capacity)
	}
	return 0
}

// rounded returns size with its first digits, and 0 for what is less.
func rounded(size int64) int64 {
	if size <= 0 {
		return 0
	}
	return size &^ (int64(1)<<max(bits.Len64(uint64(size))-digits, 0) - 1)
}

// Encode returns sizes as text, the same for the same sizes: a JSON object from class to quantity.
func (s Sizes) Encode() string {
	quantities := make(map[string]*resource.Quantity, len(s))
	for class, size := range s {
		quantities[class] = resource.NewQuantity(size, resource.BinarySI)
	}
	text, err := json.Marshal(quantities) // its keys are sorted
	if err != nil {
		return "" // quantities can always be encoded
	}
	return string(text)
}

// Decode returns the sizes in a text. What cannot be read, and what is more than MaxClasses, counts as none.
func Decode(text string) Sizes {
	var quantities map[string]resource.Quantity
	if text == "" || len(text) > MaxLength || json.Unmarshal([]byte(text), &quantities) != nil {
		return nil
	}
	sizes := Sizes{}
	for _, class := range slices.Sorted(maps.Keys(quantities))[:min(len(quantities), MaxClasses)] {
		sizes[class] = slice.Bytes(quantities[class])
	}
	return sizes
}

// Holds reports whether a volume of a class and size may be made: no size is known of the class, or it is as large.
func (s Sizes) Holds(class string, size int64) bool {
	largest, known := s[class]
	return !known || size <= largest
}
