package backend

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// The protocols that a client may upgrade a connection to.
const (
	upgradeSPDY      = "SPDY/3.1"
	upgradeWebSocket = "websocket"
)

// The subprotocols of streams. A WebSocket client may send a bearer token as one of them
// (base64url.bearer.authorization.k8s.io), so all others are dropped.
var (
	spdyVersions = []string{
		"channel.k8s.io", "v2.channel.k8s.io", "v3.channel.k8s.io", "v4.channel.k8s.io", "v5.channel.k8s.io", "portforward.k8s.io",
	}
	webSocketVersions = append([]string{
		"base64.channel.k8s.io", "v4.base64.channel.k8s.io", "v4.binary.k8s.io", "binary.k8s.io", "base64.binary.k8s.io",
		"v2.portforward.k8s.io", "SPDY/3.1+portforward.k8s.io",
	}, spdyVersions...)
)

// responseHeaders is the allow-list of headers that are forwarded to clients.
var responseHeaders = []string{
	"Connection", "Content-Length", "Content-Type", "Date", "Sec-Websocket-Accept", "Sec-Websocket-Protocol", "Upgrade",
	"X-Accepted-Stream-Protocol-Versions", "X-Stream-Protocol-Version",
}

// ErrUpgrade means that a request for a stream has no upgrade to SPDY/3.1 or WebSocket.
var ErrUpgrade = errors.New("a stream needs an upgrade to SPDY/3.1 or websocket")

// requestHeaders returns the headers of the request to the backend, taken from in by an allow-list. With upgrades, an
// in that requests none is ErrUpgrade.
func requestHeaders(in http.Header, upgrades bool) (http.Header, error) {
	out := http.Header{
		"User-Agent": {"vn-agent"},
		// Bodies are forwarded as they are: the transport neither requests compression nor unpacks.
		"Accept-Encoding": {"identity"},
	}
	copyOne(out, in, "Accept")
	if !upgrades {
		return out, nil
	}
	if !httpguts.HeaderValuesContainsToken(in["Connection"], "upgrade") || len(in["Upgrade"]) != 1 {
		return nil, ErrUpgrade
	}
	out.Set("Connection", "Upgrade")
	switch upgrade := in.Get("Upgrade"); {
	case strings.EqualFold(upgrade, upgradeSPDY):
		out.Set("Upgrade", upgradeSPDY)
		if versions := allowed(in["X-Stream-Protocol-Version"], spdyVersions); len(versions) > 0 {
			out["X-Stream-Protocol-Version"] = versions
		}
	case strings.EqualFold(upgrade, upgradeWebSocket):
		out.Set("Upgrade", upgradeWebSocket)
		copyOne(out, in, "Sec-Websocket-Key")
		copyOne(out, in, "Sec-Websocket-Version")
		if versions := allowed(in["Sec-Websocket-Protocol"], webSocketVersions); len(versions) > 0 {
			out.Set("Sec-Websocket-Protocol", strings.Join(versions, ", "))
		}
	default:
		return nil, ErrUpgrade
	}
	return out, nil
}

func copyOne(out, in http.Header, key string) {
	if value := in.Get(key); value != "" {
		out.Set(key, value)
	}
}

// allowed returns the names in values, each of which may be a comma-separated list, that are among versions. It keeps
// the order of values.
func allowed(values, versions []string) []string {
	var names []string
	for _, value := range values {
		for name := range strings.SplitSeq(value, ",") {
			if name = strings.TrimSpace(name); slices.Contains(versions, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// keepResponseHeaders deletes from header what is not in responseHeaders.
func keepResponseHeaders(header http.Header) {
	for key := range header {
		if !slices.Contains(responseHeaders, key) {
			delete(header, key)
		}
	}
}
