package superclusters

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/test/builders"
)

// TestPodRecordOfCopiedMarks: a pod with the marks of a tenant's namespace takes nothing of that namespace elsewhere.
func TestPodRecordOfCopiedMarks(t *testing.T) {
	t.Parallel()
	owner := builders.Owner("vc", "web", "u")
	for at, foreign := range map[string]bool{"vc-web": false, metav1.NamespaceDefault: true, "vc-db": true} {
		require.Equal(t, foreign, recordOf(builders.Owned(builders.Pod(at, "p").Obj(), owner)).isForeign(), at)
	}
}
