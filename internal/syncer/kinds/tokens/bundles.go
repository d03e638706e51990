package tokens

import (
	"bytes"
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	// missingPeriod is the same while a pod waits for one that is missing, at least: it grows with the age of the pod to
	// bundlePeriod, by one part in missingParts.
	missingPeriod, missingParts = 5 * time.Second, 4
	// bundleTimeout is how long that may take, and writeTime how much of a reconcile is left for the write after it, at
	// least: the tokens of the pod do not wait.
	bundleTimeout, writeTime = 3 * time.Second, 3 * time.Second
	// maxBundles and maxSelectors are how many trust bundles a pod may project, by name and by signer, and maxRequirements
	// how many labels, expressions and values its selectors may have together.
	maxBundles, maxSelectors, maxRequirements = 256, 16, 256
	// maxBundleSize is the size in bytes of all bundles of a pod: a Secret has a megabyte, and its tokens 256 kB of it.
	maxBundleSize = 512 << 10
	// maxItems and maxStore are how many ClusterTrustBundles of a tenant are read, and their size together, in bytes as they
	// are sent. Of those that are larger than maxBundleSize none goes into a pod: they are read up to maxListed with the
	// others. bundlesInPage is how many are asked for at once, and maxPages how often.
	maxItems, maxStore, maxListed, bundlesInPage, maxPages = 4096, 4 << 20, 16 << 20, 64, 512
	// readRate is how many bytes of bundles are read in missingPeriod, at most: a tenant that has more waits longer.
	readRate = 1 << 20
	// perLabel is what a label costs in memory besides its text, in bytes.
	perLabel = 64
	// ofBundles is the topic of warnings about a pod's trust bundles, beside those about its tokens.
	ofBundles = "bundles"
	// typeCertificate is that of a block in PEM.
	typeCertificate = "CERTIFICATE"
)

// bundleProjections returns the trust bundles that the volumes of a pod project, by data key.
func bundleProjections(spec *corev1.PodSpec) map[string]*corev1.ClusterTrustBundleProjection {
	projections := map[string]*corev1.ClusterTrustBundleProjection{}
	for at, source := range projected(spec) {
		if source.ClusterTrustBundle != nil {
			projections[kind.TrustBundleKey(at[0], at[1])] = source.ClusterTrustBundle
		}
	}
	return projections
}

// bundle is a ClusterTrustBundle: the certificates in it, in DER, sorted and each once, and nothing else of its text.
type bundle struct {
	signer       string
	labels       labels.Set
	certificates [][]byte
	// tooLarge is whether it is larger than maxBundleSize: it has no certificates then.
	tooLarge bool
}

// bundles are all of a tenant, as its API server said last. It is immutable.
type bundles struct {
	// byName is nil where they are not known.
	byName map[string]*bundle
	// why says why the API server gives none, or no newer ones, "" if it does. It does not depend on its words, which are
	// others each time.
	why string
	// isSilent is whether it did not answer: that is no pod's fault, and nobody is told.
	isSilent bool
	// size is how much was read, in bytes, and read when.
	size int
	read time.Time
}

// bundleStore holds the bundles of a tenant for as long as it is connected.
type bundleStore struct {
	// reading is held by whoever reads them: others take what there is.
	reading sync.Mutex
	last    atomic.Pointer[bundles]
}

// get returns the bundles of a tenant, of period ago at most where its API server answers in time and they are not much.
func (s *bundleStore) get(ctx context.Context, c client.Reader, clocks clock.PassiveClock, period time.Duration) *bundles {
	if !hasTime(ctx) || !s.reading.TryLock() {
		return cmp.Or(s.last.Load(), &bundles{isSilent: true})
	}
	defer s.reading.Unlock()
	last := cmp.Or(s.last.Load(), &bundles{isSilent: true})
	period = max(period, missingPeriod*time.Duration(last.size/readRate))
	if !last.read.IsZero() && clocks.Now().Before(last.read.Add(period)) {
		return last
	}
	limited, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	read := readBundles(limited, c)
	if read.byName == nil {
		read.byName = last.byName
	}
	read.read = clocks.Now()
	s.last.Store(read)
	return read
}

// hasTime reports whether a reconcile has time for bundles and for what comes after them.
func hasTime(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return !limited || time.Until(deadline) > bundleTimeout+writeTime
}

// readBundles lists the bundles of a tenant.
func readBundles(ctx context.Context, c client.Reader) *bundles {
	read := &bundles{byName: map[string]*bundle{}}
	fits, next := 0, ""
	for range maxPages {
		var list certificatesv1.ClusterTrustBundleList
		if err := c.List(ctx, &list, client.Limit(bundlesInPage), client.Continue(next)); err != nil {
			why := refusedBecause(err, next != "")
			return &bundles{why: why, isSilent: why == "", size: read.size}
		}
		for i := range list.Items {
			item := &list.Items[i]
			of := &bundle{signer: item.Spec.SignerName, labels: item.Labels}
			read.size += item.Size()
			if of.tooLarge = len(item.Spec.TrustBundle) > maxBundleSize; of.tooLarge {
				item.Spec.TrustBundle = ""
			}
			fits += item.Size() + perLabel*len(item.Labels)
			if fits > maxStore || read.size > maxListed || len(read.byName) == maxItems {
				return &bundles{size: read.size, why: fmt.Sprintf("the control plane has more ClusterTrustBundles than the %d, of %d kB, that are read", maxItems, maxStore>>10)}
			}
			of.certificates = certificatesIn(item.Spec.TrustBundle)
			read.byName[item.Name] = of
		}
		if next = list.Continue; next == "" {
			return read
		}
	}
	return &bundles{isSilent: true, size: read.size} // its answers have no end
}

// refusedBecause says why a list failed, "" where the API server did not answer. isLong is whether it had answered before.
func refusedBecause(err error, isLong bool) string {
	switch {
	case apierrors.IsNotFound(err):
		return "the control plane serves no ClusterTrustBundles of certificates.k8s.io/v1"
	case engine.IsRefusal(err):
		return "the control plane refuses to list ClusterTrustBundles: does the kubeconfig of the VirtualCluster have the right?"
	case apierrors.IsInternalError(err):
		return "the control plane cannot list ClusterTrustBundles: look at the log of the tenant's API server"
	case isLong && errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("the list of ClusterTrustBundles takes more than %v", bundleTimeout)
	default:
		return ""
	}
}

// certificatesIn returns the blocks of a text in PEM that are certificates, sorted, and each once.
func certificatesIn(text string) (found [][]byte) {
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return unique(found)
		}
		if block.Type == typeCertificate && len(block.Bytes) > 0 {
			found = append(found, block.Bytes)
		}
	}
}

func unique(certificates [][]byte) [][]byte {
	slices.SortFunc(certificates, bytes.Compare)
	return slices.CompactFunc(certificates, bytes.Equal)
}

// selected returns the certificates that a projection is of, in PEM, each once and in an order of their own, so that what
// is equal reads equal; nil for none. tooLarge is the name of one that is not among them, "" for none.
func (b *bundles) selected(projection *corev1.ClusterTrustBundleProjection) (content []byte, tooLarge string) {
	var certificates [][]byte
	add := func(name string, item *bundle) {
		certificates = append(certificates, item.certificates...)
		if item.tooLarge && (tooLarge == "" || name < tooLarge) {
			tooLarge = name
		}
	}
	if name := ptr.Deref(projection.Name, ""); name != "" {
		if named := b.byName[name]; named != nil {
			add(name, named)
		}
	} else if selector, err := metav1.LabelSelectorAsSelector(projection.LabelSelector); err == nil { // nil selects none, and an empty one all
		for name, item := range b.byName {
			if item.signer == ptr.Deref(projection.SignerName, "") && selector.Matches(item.labels) {
				add(name, item)
			}
		}
		certificates = unique(certificates)
	}
	var text bytes.Buffer
	for _, certificate := range certificates {
		_ = pem.Encode(&text, &pem.Block{Type: typeCertificate, Bytes: certificate}) // a buffer takes all
	}
	return text.Bytes(), tooLarge
}

// requirements returns how many labels, expressions and values a selector has.
func requirements(selector *metav1.LabelSelector) (count int) {
	if selector == nil {
		return 0
	}
	for i := range selector.MatchExpressions {
		count += 1 + len(selector.MatchExpressions[i].Values)
	}
	return count + len(selector.MatchLabels)
}

// gather returns the trust bundles of a pod by data key, had being those in its Secret, and says why they are not what the
// pod wants, "" if they are. As a kubelet does, it gives an empty file for an optional bundle of which there is none;
// without any other the pod does not start. A pod keeps what it has where something is missing or too large.
func (b *bundles) gather(projections map[string]*corev1.ClusterTrustBundleProjection, had map[string][]byte) (data map[string][]byte, why string) {
	kept, selectors, wants := map[string][]byte{}, 0, 0
	for dataKey, projection := range projections {
		if content, isThere := had[dataKey]; isThere {
			kept[dataKey] = content
		}
		if ptr.Deref(projection.Name, "") == "" {
			selectors++
			wants += requirements(projection.LabelSelector)
		}
	}
	switch {
	case len(projections) > maxBundles || selectors > maxSelectors:
		return kept, fmt.Sprintf("it projects %d, %d of them of a signer, and may project %d and %d", len(projections), selectors, maxBundles, maxSelectors)
	case wants > maxRequirements:
		return kept, fmt.Sprintf("its selectors have more than %d labels and expressions", maxRequirements)
	case b.byName == nil:
		return kept, b.why
	}
	data, why = map[string][]byte{}, b.why
	size := 0
	for _, dataKey := range slices.Sorted(maps.Keys(projections)) {
		content, isThere, lacks := b.give(projections[dataKey], kept[dataKey])
		if why = cmp.Or(why, lacks); !isThere {
			continue
		}
		if size += len(content); size > maxBundleSize {
			return kept, fmt.Sprintf("they are more than %d kB", maxBundleSize>>10)
		}
		data[dataKey] = content
	}
	return data, why
}

// give returns the content of one projection, had being what the pod has, nil for none, whether it is given any, and why
// it is not what it wants, "" if it is.
func (b *bundles) give(projection *corev1.ClusterTrustBundleProjection, had []byte) (content []byte, isThere bool, lacks string) {
	content, tooLarge := b.selected(projection)
	isOptional := ptr.Deref(projection.Optional, false)
	switch {
	case tooLarge != "":
		lacks = fmt.Sprintf("ClusterTrustBundle %s is more than %d kB", tooLarge, maxBundleSize>>10)
	case len(content) == 0 && !isOptional:
		lacks = "there is no " + describe(projection)
	}
	if lacks != "" && len(had) > 0 {
		return had, true, lacks
	}
	return content, len(content) > 0 || isOptional, lacks
}

// describe names what a projection is of.
func describe(projection *corev1.ClusterTrustBundleProjection) string {
	if name := ptr.Deref(projection.Name, ""); name != "" {
		return "ClusterTrustBundle " + name
	}
	return "ClusterTrustBundle that is selected of signer " + ptr.Deref(projection.SignerName, "")
}

// keepOthers gives secret, as it is to be, the trust bundles and certificates of the Secret that there is, and the records
// of these: a limit that others exceed keeps no token from being renewed.
func keepOthers(pair *tokenPair, secret *corev1.Secret) {
	had := pair.secret
	if had == nil {
		had = &corev1.Secret{}
	}
	for dataKey := range bundleProjections(&pair.tenantPod.Spec) {
		keep(secret.Data, had.Data, dataKey)
	}
	for _, certificate := range certificateProjections(&pair.tenantPod.Spec) {
		for _, file := range certificate.files {
			keep(secret.Data, had.Data, file.Key)
		}
	}
	keep(secret.Annotations, had.Annotations, annotationCertificates)
}

// keep gives wanted, as a map is to be, what had has under a key, or nothing.
func keep[V any](wanted, had map[string]V, key string) {
	delete(wanted, key)
	if value, isThere := had[key]; isThere {
		wanted[key] = value
	}
}

// addBundles puts the trust bundles of a pod into secret, the Secret as it is to be, and warns the tenant where they are
// not what the pod wants. Tokens do not wait for them, but they for tokens. It returns after what time they are to be looked at again, 0 if
// there are none.
func (t *Tokens) addBundles(ctx context.Context, pair *tokenPair, secret *corev1.Secret) time.Duration {
	projections := bundleProjections(&pair.tenantPod.Spec)
	if len(projections) == 0 {
		return 0
	}
	place := kind.Kept[bundleStore](pair.tenant)
	place.CompareAndSwap(nil, &bundleStore{})
	age := t.env.Clock.Since(pair.tenantPod.CreationTimestamp.Time)
	known := place.Load().get(ctx, pair.tenant.Client, t.env.Clock, periodOf(projections, secret.Data, age))
	data, why := known.gather(projections, secret.Data)
	topic := kind.Topic{Key: pair.key, Of: ofBundles}
	switch {
	case why == "" && known.isSilent: // what was said stays said
	case why == "":
		t.env.Warnings.Clear(topic)
	default:
		t.env.WarnAbout(pair.tenant, topic, pair.tenantPod, kind.ReasonFailedTrustBundle, "The pod's trust bundles: "+why)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, data)
	return periodOf(projections, secret.Data, age)
}

// periodOf returns how old the bundles of a tenant may be for a pod of an age that has data: missingPeriod and more while
// one is missing without which it does not start. A tenant's clock may say that the pod is not made yet.
func periodOf(projections map[string]*corev1.ClusterTrustBundleProjection, data map[string][]byte, age time.Duration) time.Duration {
	for dataKey := range projections {
		if _, isThere := data[dataKey]; !isThere && age >= -missingPeriod {
			return waitOf(age, missingPeriod)
		}
	}
	return bundlePeriod
}
