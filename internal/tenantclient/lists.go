package tenantclient

import (
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// listOf returns what the pages of one list, and the watch that follows it, have in common.
func listOf(location *url.URL, query url.Values) string {
	return location.Path + "?" + query.Get("labelSelector") + "&" + query.Get("fieldSelector")
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

// list returns the list of which a request reads a page, and what the pages before it brought. It returns "" for what
// is no page.
func (b *Bounds) list(location *url.URL, query url.Values) (string, content) {
	// A list of one object asks whether there is any. Nobody reads on, and no watch follows.
	if limit := query.Get("limit"); limit == "" || limit == "1" {
		return "", content{}
	}
	list := listOf(location, query)
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

// page remembers what the pages of a list brought so far.
func (b *Bounds) page(list string, soFar content) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(list)
	page := &pages{content: soFar, counted: soFar.memory}
	page.counts = time.AfterFunc(listPatience, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.discount(page)
	})
	b.lists[list] = page
	b.listing += page.counted
}

// discount lets a list count no more for others. The caller holds mu.
func (b *Bounds) discount(of *pages) {
	b.listing -= of.counted
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
