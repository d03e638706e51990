package backend

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// The protocols that streams may be upgraded to.
const (
	upgradeSPDY      = "SPDY/3.1"
	upgradeWebSocket = "websocket"
)

// The names of streams' versions. A WebSocket client may hide a bearer token among them, so other names are dropped.
var (
	spdyVersions = []string{
		"channel.k8s.io", "v2.channel.k8s.io", "v3.channel.k8s.io", "v4.channel.k8s.io", "v5.channel.k8s.io", "portforward.k8s.io",
	}
	webSocketVersions = append([]string{
		"base64.channel.k8s.io", "v4.base64.channel.k8s.io", "v4.binary.k8s.io", "binary.k8s.io", "base64.binary.k8s.io",
		"v2.portforward.k8s.io", "SPDY/3.1+portforward.k8s.io",
	}, spdyVersions...)
)

// responseHeaders are passed on to clients; nothing else is.
var responseHeaders = []string{
	"Connection", "Content-Length", "Content-Type", "Date", "Sec-Websocket-Accept", "Sec-Websocket-Protocol", "Upgrade",
	"X-Accepted-Stream-Protocol-Versions", "X-Stream-Protocol-Version",
}

// ErrUpgrade says that a request does not ask for a stream in a way that is known.
var ErrUpgrade = errors.New("a stream needs an upgrade to SPDY/3.1 or websocket")

// requestHeaders returns the headers that go to the backend.
func requestHeaders(in http.Header, upgrades bool) (http.Header, error) {
	out := http.Header{
		"User-Agent": {"vn-agent"},
		// Bytes pass as they are: no one on the way compresses or unpacks them.
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
		if versions := known(in["X-Stream-Protocol-Version"], spdyVersions); len(versions) > 0 {
			out["X-Stream-Protocol-Version"] = versions
		}
	case strings.EqualFold(upgrade, upgradeWebSocket):
		out.Set("Upgrade", upgradeWebSocket)
		copyOne(out, in, "Sec-Websocket-Key")
		copyOne(out, in, "Sec-Websocket-Version")
		if versions := known(in["Sec-Websocket-Protocol"], webSocketVersions); len(versions) > 0 {
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

// known returns those names of values, which may be lists, that are among versions, in their order.
func known(values, versions []string) []string {
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

// keepResponseHeaders deletes from header what is not passed on.
func keepResponseHeaders(header http.Header) {
	for key := range header {
		if !slices.Contains(responseHeaders, key) {
			delete(header, key)
		}
	}
}
