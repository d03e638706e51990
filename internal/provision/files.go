package provision

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/controlplane"
)

// files are the Secrets that a ClusterVersion names, as they are in vc-manager's namespace, by name.
type files struct {
	sources map[string]*corev1.Secret
	// lacks is why one does not have what is wanted of it, "" where all have.
	lacks string
}

// readFiles reads the Secrets that a ClusterVersion names.
func (r *Reconciler) readFiles(ctx context.Context, plane *controlplane.ControlPlane) (files, error) {
	read := files{sources: map[string]*corev1.Secret{}}
	plane.FileSums = map[string]string{}
	keys := controlplane.FileSecrets(plane.Version)
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		source := &corev1.Secret{}
		err := r.Reader.Get(ctx, types.NamespacedName{Namespace: r.Network.Manager, Name: name}, source)
		if err != nil && !apierrors.IsNotFound(err) {
			return read, fmt.Errorf("getting Secret %s/%s: %w", r.Network.Manager, name, err)
		}
		if why := unfit(source, keys[name]); why != "" {
			read.lacks = fmt.Sprintf("Secret %s/%s, which has files, %s", r.Network.Manager, name, why)
			return read, nil
		}
		read.sources[name], plane.FileSums[name] = source, sumOf(source, keys[name])
	}
	return read, nil
}

// unfit returns why a Secret does not have the files that are wanted of it, "" where it does. Without resource version there
// is none.
func unfit(source *corev1.Secret, keys []string) string {
	switch {
	case source.ResourceVersion == "":
		return "is not there"
	case source.Type != controlplane.FileSecretType: // others in that namespace are nobody's to give to tenants
		return fmt.Sprintf("is of type %s: make it anew, of type %s", source.Type, controlplane.FileSecretType)
	}
	for _, key := range keys {
		if len(source.Data[key]) == 0 {
			return "has no key " + key
		}
	}
	return ""
}

// sumOf returns a sum of keys of a Secret: another one where one has another content.
func sumOf(source *corev1.Secret, keys []string) string {
	hash := sha256.New()
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		fmt.Fprintf(hash, "%s %d ", key, len(source.Data[key]))
		hash.Write(source.Data[key])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// copy copies the Secrets to the root namespace. A key that is there stays: pods of the ClusterVersion of before may read it.
func (f *files) copy(ctx context.Context, store *store) error {
	copies := &secrets{client: store.Client, reader: store.Reader, namespace: store.plane.Namespace}
	for _, name := range slices.Sorted(maps.Keys(f.sources)) {
		there, err := copies.get(ctx, controlplane.FileSecret(name))
		if err != nil {
			return err
		}
		data := map[string][]byte{}
		if there != nil {
			maps.Copy(data, there.Data)
		}
		maps.Copy(data, f.sources[name].Data)
		if err := copies.keep(ctx, controlplane.FileSecret(name), controlplane.FileSecretType, there, data); err != nil {
			return err
		}
	}
	return nil
}
