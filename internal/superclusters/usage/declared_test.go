package usage_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/superclusters/usage"
)

func TestParseStorage(t *testing.T) {
	t.Parallel()
	for text, wantErr := range map[string]string{
		"much": `storage is "much": want a quantity such as 10Ti`, "-1Gi": "must not be negative", "9Pi": "is larger than any pool",
		"10000000000000000000000000000000000": "storage is longer than 32 characters",
	} {
		_, err := usage.ParseStorage(text)
		require.ErrorContains(t, err, wantErr)
	}
}
