package tenantclient_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// TestMetadataIsRead: a client of metadata reads lists in protobuf, whatever kind they are of.
func TestMetadataIsRead(t *testing.T) {
	t.Parallel()
	list := metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "s", Finalizers: []string{"f"}}}}}
	raw, err := list.Marshal()
	require.NoError(t, err)
	text, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, Raw: raw}).Marshal()
	require.NoError(t, err)
	api, err := metadata.NewForConfig(answering(bounded(t), http.StatusOK, protobufType, func(*http.Request) io.Reader {
		return strings.NewReader("k8s\x00" + string(text))
	}))
	require.NoError(t, err)
	read, err := api.Resource(schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}).List(t.Context(), metav1.ListOptions{Limit: 1})
	require.NoError(t, err)
	require.Len(t, read.Items, 1)
	require.Equal(t, []string{"f"}, read.Items[0].Finalizers)
}
