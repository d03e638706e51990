package tokens

import (
	"bytes"
	"cmp"
	"context"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
)

const (
	// bundlePeriod is after how long the ClusterTrustBundles of a tenant are read again, all in one list, for as long as a
	// pod of it wants one. Few tenants have any, and they change with authorities: no watch is held for them.
	bundlePeriod = time.Minute
	// bundleTimeout is how long that may take: the tokens of the pod are written afterwards.
	bundleTimeout = 4 * time.Second
	// maxBundles and maxSelectors are how many trust bundles a pod may project, by name and by signer.
	maxBundles, maxSelectors = 256, 16
	// maxStore is how much the ClusterTrustBundles of a tenant may be together, in bytes of their texts, names and labels,
	// bundlesInPage how many one answer has, each of a megabyte at most, and maxPages how many answers.
	maxStore, bundlesInPage, maxPages = 1 << 20, 8, 512
	// maxBundleSize is the size in bytes of all bundles of a pod: a Secret has a megabyte, and its tokens 256 kB of it.
	maxBundleSize = 512 << 10
	// ofBundles is the topic of warnings about a pod's trust bundles, beside those about its tokens.
	ofBundles = "bundles"
	// typeCertificate is that of a block in PEM.
	typeCertificate = "CERTIFICATE"
)

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

// bundle is a ClusterTrustBundle: the certificates in it, in DER, and nothing else of its text.
type bundle struct {
	signer       string
	labels       labels.Set
	certificates [][]byte
}

// bundles are all of a tenant, as its API server said last. It is immutable.
type bundles struct {
	byName map[string]*bundle
	// why says why they are not known, "" if they are.
	why string
}

// bundleStore holds the bundles of a tenant for as long as it is connected.
type bundleStore struct {
	mu   sync.Mutex
	last *bundles
	next time.Time
}

// read returns the bundles of a tenant, of bundlePeriod ago at most. Where they cannot be read it returns those that were,
// with the reason.
func (s *bundleStore) read(ctx context.Context, c client.Reader, clock clock.PassiveClock) *bundles {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	if s.last != nil && now.Before(s.next) {
		return s.last
	}
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	read, why := readBundles(ctx, c)
	if why != "" && s.last != nil {
		read = s.last.byName
	}
	s.last, s.next = &bundles{byName: read, why: why}, now.Add(bundlePeriod)
	return s.last
}

// readBundles lists the bundles of a tenant, and says why it does not. What is said does not depend on the words of its API
// server, which are others each time.
func readBundles(ctx context.Context, c client.Reader) (byName map[string]*bundle, why string) {
	byName = map[string]*bundle{}
	size, next := 0, ""
	for range maxPages {
		var list certificatesv1.ClusterTrustBundleList
		err := c.List(ctx, &list, client.Limit(bundlesInPage), client.Continue(next))
		switch {
		case apierrors.IsNotFound(err):
			return nil, "the control plane serves no ClusterTrustBundles of certificates.k8s.io/v1"
		case engine.IsRefusal(err):
			return nil, "the control plane refuses to list ClusterTrustBundles: does the kubeconfig of the VirtualCluster have the right?"
		case err != nil:
			return nil, "the control plane did not answer"
		}
		for i := range list.Items {
			item := &list.Items[i]
			if size += sizeOf(item); size > maxStore {
				return nil, tooMany
			}
			byName[item.Name] = &bundle{signer: item.Spec.SignerName, labels: item.Labels, certificates: certificatesIn(item.Spec.TrustBundle)}
		}
		if next = list.Continue; next == "" {
			return byName, ""
		}
	}
	return nil, tooMany
}

// tooMany says why none of a tenant's bundles are kept.
var tooMany = fmt.Sprintf("the control plane has more than %d kB of ClusterTrustBundles", maxStore>>10)

func sizeOf(item *certificatesv1.ClusterTrustBundle) int {
	size := len(item.Spec.TrustBundle) + len(item.Spec.SignerName) + len(item.Name)
	for key, value := range item.Labels {
		size += len(key) + len(value)
	}
	return size
}

// certificatesIn returns the blocks of a text in PEM that are certificates.
func certificatesIn(text string) (found [][]byte) {
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return found
		}
		if block.Type == typeCertificate {
			found = append(found, block.Bytes)
		}
	}
}

// selected returns the certificates that a projection is of, in PEM, each once and in an order of their own, so that what
// is equal reads equal; nil for none.
func (b *bundles) selected(projection *corev1.ClusterTrustBundleProjection) []byte {
	var certificates [][]byte
	if name := ptr.Deref(projection.Name, ""); name != "" {
		if named := b.byName[name]; named != nil {
			certificates = slices.Clone(named.certificates)
		}
	} else if selector, err := metav1.LabelSelectorAsSelector(projection.LabelSelector); err == nil { // nil selects none, and an empty one all
		for _, item := range b.byName {
			if item.signer == ptr.Deref(projection.SignerName, "") && selector.Matches(item.labels) {
				certificates = append(certificates, item.certificates...)
			}
		}
	}
	slices.SortFunc(certificates, bytes.Compare)
	var text bytes.Buffer
	for _, certificate := range slices.CompactFunc(certificates, bytes.Equal) {
		_ = pem.Encode(&text, &pem.Block{Type: typeCertificate, Bytes: certificate}) // a buffer takes all
	}
	return text.Bytes()
}

// gather returns the trust bundles of a pod by data key, had being those in its Secret, and says why they are not what the
// pod wants, "" if they are. As a kubelet does, it gives an empty file for an optional bundle of which there is none;
// without any other the pod does not start, and one that has it keeps it.
func (b *bundles) gather(spec *corev1.PodSpec, had map[string][]byte) (data map[string][]byte, why string) {
	projections := bundleProjections(spec)
	kept, selectors := map[string][]byte{}, 0
	for dataKey, projection := range projections {
		if content, isThere := had[dataKey]; isThere {
			kept[dataKey] = content
		}
		if ptr.Deref(projection.Name, "") == "" {
			selectors++
		}
	}
	switch {
	case len(projections) > maxBundles || selectors > maxSelectors:
		return kept, fmt.Sprintf("it projects %d, %d of them of a signer, and may project %d and %d", len(projections), selectors, maxBundles, maxSelectors)
	case b.byName == nil:
		return kept, b.why
	}
	data, why = map[string][]byte{}, b.why
	size := 0
	for _, dataKey := range slices.Sorted(maps.Keys(projections)) {
		projection := projections[dataKey]
		content := b.selected(projection)
		if len(content) == 0 && !ptr.Deref(projection.Optional, false) {
			why = cmp.Or(why, "there is no "+describe(projection))
			isThere := false
			if content, isThere = kept[dataKey]; !isThere {
				continue
			}
		}
		data[dataKey] = content
		size += len(content)
	}
	if size > maxBundleSize {
		return kept, fmt.Sprintf("they are more than %d kB", maxBundleSize>>10)
	}
	return data, why
}

// describe names what a projection is of.
func describe(projection *corev1.ClusterTrustBundleProjection) string {
	if name := ptr.Deref(projection.Name, ""); name != "" {
		return "ClusterTrustBundle " + name
	}
	return "ClusterTrustBundle of signer " + ptr.Deref(projection.SignerName, "")
}

// keepBundles gives secret, as it is to be, the trust bundles of the Secret that there is, and reports whether it had
// others: a limit that these exceed keeps no token from being renewed.
func keepBundles(pair *tokenPair, secret *corev1.Secret) (changed bool) {
	for dataKey := range bundleProjections(&pair.tenantPod.Spec) {
		var had []byte
		var isThere bool
		if pair.secret != nil {
			had, isThere = pair.secret.Data[dataKey]
		}
		wanted, isWanted := secret.Data[dataKey]
		changed = changed || isThere != isWanted || !bytes.Equal(had, wanted)
		delete(secret.Data, dataKey)
		if isThere {
			secret.Data[dataKey] = had
		}
	}
	return changed
}

// addBundles puts the trust bundles of a pod into secret, the Secret as it is to be, and warns the tenant where they are
// not what the pod wants. Tokens do not wait for them. It reports whether there are any.
func (t *Tokens) addBundles(ctx context.Context, pair *tokenPair, secret *corev1.Secret) bool {
	if len(bundleProjections(&pair.tenantPod.Spec)) == 0 {
		return false
	}
	place := kind.Kept[bundleStore](pair.tenant)
	place.CompareAndSwap(nil, &bundleStore{})
	data, why := place.Load().read(ctx, pair.tenant.Client, t.env.Clock).gather(&pair.tenantPod.Spec, secret.Data)
	topic := kind.Topic{Key: pair.key, Of: ofBundles}
	if why == "" {
		t.env.Warnings.Clear(topic)
	} else {
		t.env.WarnAbout(pair.tenant, topic, pair.tenantPod, kind.ReasonFailedTrustBundle, "The pod's trust bundles: "+why)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, data)
	return true
}
