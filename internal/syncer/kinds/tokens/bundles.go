package tokens

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/kind"
)

const (
	// bundlePeriod is after how long the trust bundles of a pod are read again. Few pods have any, and they change with
	// authorities: no watch is held for them.
	bundlePeriod = 5 * time.Minute
	// maxBundles is the number of trust bundles of a pod, each of which is a request per period, maxListed how many
	// ClusterTrustBundles one may be of, and maxBundleSize the size in bytes of all together: a Secret has a megabyte.
	maxBundles    = 16
	maxListed     = 500
	maxBundleSize = 512 << 10
	// signerField selects the ClusterTrustBundles of a signer.
	signerField = "spec.signerName"
)

// errNoBundle is the error for a trust bundle of which the tenant has none.
var errNoBundle = errors.New("the control plane has none")

// bundleProjections returns the trust bundles that the volumes of a pod project, by data key.
func bundleProjections(spec *corev1.PodSpec) map[string]*corev1.ClusterTrustBundleProjection {
	var projections map[string]*corev1.ClusterTrustBundleProjection
	for i := range spec.Volumes {
		if spec.Volumes[i].Projected == nil {
			continue
		}
		for j := range spec.Volumes[i].Projected.Sources {
			if bundle := spec.Volumes[i].Projected.Sources[j].ClusterTrustBundle; bundle != nil {
				if projections == nil {
					projections = map[string]*corev1.ClusterTrustBundleProjection{}
				}
				projections[kind.TrustBundleKey(i, j)] = bundle
			}
		}
	}
	return projections
}

// gather writes the trust bundles of a pod to secret. As with a kubelet an optional one that is missing is empty, and one
// that was there before stays; without any the pod does not start. missing says what is missing, "" for nothing.
func (t *Tokens) gather(ctx context.Context, pair *tokenPair, secret *corev1.Secret) (missing string, err error) {
	projections := bundleProjections(&pair.tenantPod.Spec)
	if len(projections) > maxBundles {
		return fmt.Sprintf("The pod projects %d trust bundles: at most %d are there", len(projections), maxBundles), nil
	}
	size := 0
	for _, dataKey := range slices.Sorted(maps.Keys(projections)) {
		content, err := t.bundle(ctx, pair, projections[dataKey])
		_, isThere := secret.Data[dataKey]
		switch {
		case err == nil:
		case errors.Is(err, errNoBundle) && isThere:
			continue
		case errors.Is(err, errNoBundle) && ptr.Deref(projections[dataKey].Optional, false):
		case errors.Is(err, errNoBundle):
			missing = fmt.Sprintf("Trust bundle %s: %v", describe(projections[dataKey]), err)
			continue
		default:
			return "", err
		}
		if size += len(content); size > maxBundleSize {
			return fmt.Sprintf("The trust bundles of the pod are more than %d kB", maxBundleSize>>10), nil
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[dataKey] = content
	}
	return missing, nil
}

// describe names what a projection is of.
func describe(projection *corev1.ClusterTrustBundleProjection) string {
	if name := ptr.Deref(projection.Name, ""); name != "" {
		return name
	}
	return "of signer " + ptr.Deref(projection.SignerName, "")
}

// bundle returns the certificates that a projection is of, in PEM, errNoBundle if the tenant has none.
func (t *Tokens) bundle(ctx context.Context, pair *tokenPair, projection *corev1.ClusterTrustBundleProjection) ([]byte, error) {
	if name := ptr.Deref(projection.Name, ""); name != "" {
		bundle := &certificatesv1.ClusterTrustBundle{}
		err := t.env.Done(ctx, kind.Token, "request", pair.tenant.Client.Get(ctx, types.NamespacedName{Name: name}, bundle))
		if apierrors.IsNotFound(err) {
			return nil, errNoBundle
		}
		if err != nil {
			return nil, err
		}
		return joined([]certificatesv1.ClusterTrustBundle{*bundle})
	}
	selector, err := metav1.LabelSelectorAsSelector(projection.LabelSelector) // nil selects none, and an empty one all
	if err != nil {
		return nil, fmt.Errorf("reading labelSelector: %w", err)
	}
	var list certificatesv1.ClusterTrustBundleList
	err = pair.tenant.Client.List(ctx, &list, client.MatchingFields{signerField: ptr.Deref(projection.SignerName, "")}, client.MatchingLabelsSelector{Selector: selector}, client.Limit(maxListed))
	if err := t.env.Done(ctx, kind.Token, "request", err); err != nil {
		return nil, err
	}
	return joined(list.Items)
}

// joined returns the certificates of bundles in PEM, each once and in an order of its own, so that what is equal reads
// equal, and nothing else of them. It returns errNoBundle where there are none.
func joined(bundles []certificatesv1.ClusterTrustBundle) ([]byte, error) {
	var all []*x509.Certificate
	for i := range bundles {
		certificates, err := certutil.ParseCertsPEM([]byte(bundles[i].Spec.TrustBundle))
		if err != nil {
			return nil, fmt.Errorf("%w that is readable: %s holds no certificate", errNoBundle, bundles[i].Name)
		}
		all = append(all, certificates...)
	}
	if len(all) == 0 {
		return nil, errNoBundle
	}
	slices.SortFunc(all, func(a, b *x509.Certificate) int { return bytes.Compare(a.Raw, b.Raw) })
	all = slices.CompactFunc(all, (*x509.Certificate).Equal)
	return certutil.EncodeCertificates(all...) //nolint:wrapcheck // it encodes what was parsed
}
