package writerate

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWriteRateHasNoGap demands that all ways to write are counted, those of other versions of the library, too.
func TestWriteRateHasNoGap(t *testing.T) {
	t.Parallel()
	free := []string{"Get", "List", "Watch", "Delete", "DeleteAllOf", "SubResource", "SubResourceGet"}
	funcs := reflect.ValueOf(New(nil, nil).funcs())
	for i := range funcs.NumField() {
		name := funcs.Type().Field(i).Name
		require.Equal(t, !slices.Contains(free, name), !funcs.Field(i).IsNil(), name)
	}
}
