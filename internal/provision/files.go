package provision

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/provision/secrets"
)

// files are those of a ClusterVersion that are secrets, as they are in vc-manager's namespace.
type files struct {
	// data is what SecretFiles of the root namespace is to have.
	data map[string][]byte
	// there is that Secret as it was read before files were added, nil for none.
	there *corev1.Secret
	// lacks is why one is not there, "" where all are.
	lacks string
}

// readFiles reads the files of a ClusterVersion that are secrets.
func (r *Reconciler) readFiles(ctx context.Context, plane *controlplane.ControlPlane) (files, error) {
	read := files{data: map[string][]byte{}}
	plane.FileKeys = map[controlplane.FileSource]string{}
	sources := map[string]*corev1.Secret{}
	for _, source := range controlplane.FileSources(plane.Version) {
		secret, isRead := sources[source.Secret]
		if !isRead {
			secret = &corev1.Secret{}
			err := r.Reader.Get(ctx, types.NamespacedName{Namespace: r.Network.Manager, Name: source.Secret}, secret)
			if err != nil && !apierrors.IsNotFound(err) {
				return read, fmt.Errorf("getting Secret %s/%s: %w", r.Network.Manager, source.Secret, err)
			}
			sources[source.Secret] = secret
		}
		content := secret.Data[source.Key]
		if why := unfit(secret, source.Key, content); why != "" {
			read.lacks = fmt.Sprintf("files are in Secret %s/%s, %s", r.Network.Manager, source.Secret, why)
			return read, nil
		}
		key := controlplane.FileKey(source.Key, content)
		read.data[key], plane.FileKeys[source] = content, key
	}
	return read, nil
}

// unfit returns why a Secret has no content that may be a file, "" where it has. Without resource version there is none.
func unfit(secret *corev1.Secret, key string, content []byte) string {
	switch {
	case secret.ResourceVersion == "":
		return fmt.Sprintf("which is not there: create it, of type %s, with key %s", controlplane.FileSecretType, key)
	case secret.Type != controlplane.FileSecretType: // others in that namespace are nobody's to give to tenants
		return fmt.Sprintf("which is of type %s: make it anew, of type %s", secret.Type, controlplane.FileSecretType)
	case len(content) == 0:
		return "which has no key " + key
	case len(content) > controlplane.MaxFile:
		return fmt.Sprintf("which has %d bytes in key %s: %d at most", len(content), key, controlplane.MaxFile)
	}
	return ""
}

// add adds the files to those in the root namespace: pods of before read theirs yet.
func (f *files) add(ctx context.Context, copies *secrets.Keeper) (err error) {
	if f.there, err = copies.Get(ctx, controlplane.SecretFiles); err != nil || len(f.data) == 0 {
		return err
	}
	data := maps.Clone(f.data)
	if f.there != nil {
		maps.Copy(data, f.there.Data)
	}
	return copies.Keep(ctx, controlplane.SecretFiles, controlplane.FileSecretType, f.there, data)
}

// prune lets the files be all that there are in the root namespace: no pod has others any more. It goes by what add has
// read, so that what somebody else has added since stays.
func (f *files) prune(ctx context.Context, copies *secrets.Keeper) error {
	if f.there == nil {
		return nil
	}
	return copies.Keep(ctx, controlplane.SecretFiles, controlplane.FileSecretType, f.there, f.data)
}
