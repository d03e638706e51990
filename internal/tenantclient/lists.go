package tenantclient

import (
	"net/http"
	"net/url"
	"regexp"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// listOf returns what the pages of one list, and the watch that follows it, have in common.
func listOf(location *url.URL, query url.Values) string {
	return location.Path + "?" + query.Get("labelSelector") + "&" + query.Get("fieldSelector")
}

// objectPatience is how long what becomes of the largest object counts for the others after it was read, and
// leastPatience for a small one. Each is decoded in a twentieth of it.
const objectPatience, leastPatience = 2 * time.Second, 100 * time.Millisecond

// object counts for what is decoded what becomes of an object, until it was.
func (b *Bounds) object(memory int64) {
	b.decodes(memory)
	patience := max(leastPatience, time.Duration(float64(objectPatience)*float64(memory)/maxObjectMemory))
	time.AfterFunc(patience, func() { b.decodes(-memory) })
}

// decodes adds to what becomes of the texts that are decoded.
func (b *Bounds) decodes(memory int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.decoding += memory
}

// decodesTooMuch returns the bound that is exceeded by what becomes of all texts that are decoded, nil if none is.
func (b *Bounds) decodesTooMuch() *ExcessError {
	b.mu.Lock()
	decoding := b.decoding
	b.mu.Unlock()
	if most := b.mayBecome(); decoding > most {
		return b.tooMuch("What becomes of all answers and events that are decoded", most)
	}
	return nil
}

// mayBecome returns how many bytes of memory all lists, answers and events that are decoded may become.
func (b *Bounds) mayBecome() int64 {
	limits := &b.policy.Get().Spec().Limits
	return limits.CachedBytes.Value() + limits.AnswerBytes.Value()
}

func (b *Bounds) tooMuch(what string, most int64) *ExcessError {
	return &ExcessError{What: what, Limit: bytesOf(most), Field: "cachedBytes", Policy: b.policy.Get().Name()}
}

// listPatience is how long what became of a list counts for the others after a page.
const listPatience = 2 * time.Minute

// pages is what the pages of a list became so far, for its next page. It counts for other lists, too, until the watch
// begins that follows the list: by then its informer has it, and soon the Account. It counts for them no more, either,
// once nobody has read on for listPatience.
type pages struct {
	content
	counts *time.Timer
	// counted is what counts for others.
	counted int64
}

// collections are the paths of lists, and of none of the objects in them.
var collections = regexp.MustCompile(`/(api/v1|apis/[^/]+/[^/]+)(/namespaces/[^/]+)?/[^/]+$`)

// readsList returns whether a request that is no watch reads a list. One of one object asks whether there is any:
// nobody reads on, and no watch follows.
func readsList(request *http.Request, query url.Values) bool {
	return request.Method == http.MethodGet && query.Get("limit") != "1" && collections.MatchString(request.URL.Path)
}

// list returns the list of which a request reads a page, which may be all of it, and what the pages before it brought.
// It returns "" for what answers with one object.
func (b *Bounds) list(request *http.Request, query url.Values) (string, content) {
	if !readsList(request, query) {
		return "", content{}
	}
	list := listOf(request.URL, query)
	if query.Get("continue") == "" {
		b.listed(list)
		return list, content{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, exists := b.lists[list]; exists {
		return list, known.content
	}
	return list, content{}
}

// page remembers what a page of a list brought, and the pages before it.
func (b *Bounds) page(list string, before, most content) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(list)
	soFar := before.plus(most)
	page := &pages{content: soFar, counted: soFar.memory}
	page.counts = time.AfterFunc(listPatience, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.discount(page)
	})
	b.lists[list] = page
	b.decoding += page.counted
	if charged := most.memory * share / max(b.mayBecome(), 1); charged >= share/small {
		b.relists.ReserveN(time.Now(), int(charged))
	}
}

const (
	// listsPerHour bounds how often a tenant may have as much listed as its lists may become. An API server has a
	// client list anew with two lines: a watch that ends because its version has expired.
	listsPerHour = 16
	// share are the parts in which one of them counts.
	share = 1_000_000
	// small is the part of a share below which a page costs nothing: small lists are read again on purpose, too.
	small = 100
)

func newRelists() *rate.Limiter {
	return rate.NewLimiter(listsPerHour*share/rate.Limit(time.Hour.Seconds()), listsPerHour*share)
}

// listsTooOften returns the bound that is exceeded by what lists became so far, nil unless a request begins another
// one.
func (b *Bounds) listsTooOften(request *http.Request) *ExcessError {
	if b.relists.Tokens() >= 0 {
		return nil
	}
	query := request.URL.Query()
	if query.Get("watch") != "" || query.Get("continue") != "" || !readsList(request, query) {
		return nil
	}
	return b.tooMuch("What lists of an hour became", listsPerHour*b.mayBecome())
}

// discount lets a list count no more for others. The caller holds mu.
func (b *Bounds) discount(of *pages) {
	b.decoding -= of.counted
	of.counted = 0
}

// listed forgets a list.
func (b *Bounds) listed(list string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(list)
}

// forget is listed for a caller that holds mu.
func (b *Bounds) forget(list string) {
	if known, exists := b.lists[list]; exists {
		known.counts.Stop()
		b.discount(known)
		delete(b.lists, list)
	}
}

// Paged changes the options with which an informer lists: an API server ignores the limit of a list of resource version
// 0, and would send all objects in one answer. Other lists without a limit stay: they begin where a watch has ended.
func Paged(options *metav1.ListOptions) {
	if options.Limit > 0 && options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
}
