package tenantclient

import "k8s.io/client-go/tools/cache"

// Handler is handler.
func (a *Account) Handler(next cache.ResourceEventHandler) cache.ResourceEventHandler {
	return a.handler(next)
}

// Transform is transform.
func (a *Account) Transform(next cache.TransformFunc) cache.TransformFunc { return a.transform(next) }

// SetMostWaiting sets mostWaiting. It is called before Follow.
func (b *Bounds) SetMostWaiting(bytes int64) { b.mostWaiting = bytes }

// MaxUnread is maxUnread.
const MaxUnread = maxUnread
