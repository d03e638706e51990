package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/manifests"
)

// clusterVersion is the version of Cluster API in which a Cluster is written for a meta cluster that serves none yet.
const clusterVersion = "v1beta2"

// file is one that join writes.
type file struct {
	name    string
	content []byte
}

// objects returns what a file has for the meta cluster, nothing for a kubeconfig.
func (f *file) objects() (objects []*unstructured.Unstructured, err error) {
	if !strings.HasSuffix(f.name, ".yaml") {
		return nil, nil
	}
	const buffer = 4096
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(f.content), buffer); ; {
		var text runtime.RawExtension
		err := documents.Decode(&text)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		object := &unstructured.Unstructured{}
		if err == nil {
			err = object.UnmarshalJSON(text.Raw)
		}
		if err != nil {
			return nil, fmt.Errorf("parsing %s: %w", f.name, err)
		}
		objects = append(objects, object)
	}
}

const clusterFile = `apiVersion: cluster.x-k8s.io/%[1]s
kind: Cluster
metadata:
  name: "%[2]s"
  namespace: "%[3]s"
  labels: {scheduler.tenancy.x-k8s.io/joined: "%[2]s"}
spec:
  controlPlaneEndpoint:
    host: %[4]q
    port: %[5]d
`

const schedulerSecretFile = `apiVersion: v1
kind: Secret
metadata:
  name: "%[1]s-kubeconfig"
  namespace: "%[2]s"
  labels:
    cluster.x-k8s.io/cluster-name: "%[1]s"
    scheduler.tenancy.x-k8s.io/joined: "%[1]s"
type: cluster.x-k8s.io/secret
data:
  value: %[3]s
`

const syncerSecretFile = `apiVersion: v1
kind: Secret
metadata:
  name: "vc-syncer-%[1]s"
  namespace: %[2]s
  labels: {scheduler.tenancy.x-k8s.io/joined: "%[1]s"}
type: Opaque
data:
  config: %[3]s
`

// registration is what registers a super cluster with a meta cluster.
type registration struct {
	id, namespace string
	// clusterVersion is that of Cluster API in the meta cluster.
	clusterVersion string
	place          *clientcmdapi.Cluster
	// tokens are those of our accounts in the super cluster, vc-scheduler and syncer.
	tokens map[string]string
	values manifests.Values
}

// files returns the registration as files: what is for the meta cluster in the order in which it is applied, and then
// the kubeconfigs alone.
func (r *registration) files() ([]file, error) {
	host, port, err := endpoint(r.place.Server)
	if err != nil {
		return nil, err
	}
	scheduler, err := accountKubeconfig(r.place, r.id, "vc-scheduler", r.tokens["vc-scheduler"])
	if err != nil {
		return nil, err
	}
	syncer, err := accountKubeconfig(r.place, r.id, "syncer", r.tokens["syncer"])
	if err != nil {
		return nil, err
	}
	files := []file{
		{"cluster-cr.yaml", fmt.Appendf(nil, clusterFile, r.clusterVersion, r.id, r.namespace, host, port)},
		{"secret-for-scheduler.yaml", fmt.Appendf(nil, schedulerSecretFile, r.id, r.namespace, encoded(scheduler))},
		{"secret-for-vc-syncer.yaml", fmt.Appendf(nil, syncerSecretFile, r.id, tenancyv1alpha1.ManagerNamespace, encoded(syncer))},
	}
	values := r.values
	values.ID = r.id
	for _, name := range []string{"vc-syncer-rbac.yaml", "vc-syncer.yaml"} {
		content, err := values.File("syncer/" + name)
		if err != nil {
			return nil, err //nolint:wrapcheck // it says what it did
		}
		files = append(files, file{name, content})
	}
	return append(files, file{"scheduler.kubeconfig", scheduler}, file{"syncer.kubeconfig", syncer}), nil
}

// writeFiles writes files for their owner alone, whatever the files of an earlier run were like. Others in the folder
// stay.
func writeFiles(folder string, files []file) error {
	const ofOwner, folderOfOwner = 0o600, 0o700
	if err := os.MkdirAll(folder, folderOfOwner); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	for _, f := range files {
		path := filepath.Join(folder, f.name)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--out: %w", err)
		}
		created, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, ofOwner) // no link that another has put there
		if err == nil {
			_, err = created.Write(f.content)
			err = errors.Join(err, created.Close())
		}
		if err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	return nil
}
