package tenantclient

import (
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// listOf returns what the pages of one list, and the watch that follows it, have in common.
func listOf(location *url.URL, query url.Values) string {
	return location.Path + "?" + query.Get("labelSelector") + "&" + query.Get("fieldSelector")
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
		return list, content{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return list, b.lists[list]
}

// page remembers what the pages of a list brought so far.
func (b *Bounds) page(list string, soFar content) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lists[list] = soFar
}

// listed forgets a list that a watch follows.
func (b *Bounds) listed(location *url.URL, query url.Values) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.lists, listOf(location, query))
}

// Paged changes the options with which an informer lists: an API server ignores the limit of a list of resource version
// 0, and would send all objects in one answer. Other lists without a limit stay: they begin where a watch has ended.
func Paged(options *metav1.ListOptions) {
	if options.Limit > 0 && options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
}
