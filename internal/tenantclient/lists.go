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

// listPatience is how long a list is remembered after a page: longer than the next one may take.
const listPatience = 2 * time.Minute

// pages is what the pages of a list became so far. It counts until the watch begins that follows the list: by then its
// informer has it, and soon the Account. It counts no more, either, once nobody has read on for listPatience.
type pages struct {
	content
	forgets *time.Timer
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
	return list, b.lists[list].content
}

// page remembers what the pages of a list brought so far.
func (b *Bounds) page(list string, soFar content) {
	b.listed(list)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lists[list] = pages{content: soFar, forgets: time.AfterFunc(listPatience, func() { b.listed(list) })}
	b.listing += soFar.memory
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
		known.forgets.Stop()
		b.listing -= known.memory
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
