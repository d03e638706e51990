package ui

import (
	"context"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
)

//go:embed page
var embedded embed.FS

const (
	// mostStreams is how many pages are told of changes at a time: a browser has six connections to a host, and the others
	// are for what pages ask. mostConnections is how many there are.
	mostStreams, mostConnections = 4, 32
	// beat is how often a stream says that it is there, and writeTimeout how long a write may take.
	beat, writeTimeout = 15 * time.Second, 10 * time.Second
	// trialTimeout is how long something is tried in memory, with the time that it waits for another one.
	trialTimeout = 2 * time.Minute
)

// policy lets a page load its own files, and ask its own server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// server answers a browser on this machine. It writes to no cluster.
type server struct {
	*cli.CLI
	hub *hub
	cfg *config.KubeSchedulerConfiguration
	// hosts are what a browser may call it, and token is how all paths begin: a page of somebody else knows none.
	hosts []string
	token string
	// streams has a place for each stream, and trials one for what is tried.
	streams, trials chan struct{}
}

func newServer(c *cli.CLI, hub *hub, cfg *config.KubeSchedulerConfiguration, address net.Addr, token string) *server {
	_, port, _ := net.SplitHostPort(address.String()) // it is one
	return &server{
		CLI: c, hub: hub, cfg: cfg, token: token, hosts: []string{"127.0.0.1:" + port, "localhost:" + port, "[::1]:" + port},
		streams: make(chan struct{}, mostStreams), trials: make(chan struct{}, 1),
	}
}

// path returns what all paths begin with.
func (s *server) path() string { return "/" + s.token + "/" }

// handler returns what answers, GET alone: only a browser that asks for this server by the path that was printed.
func (s *server) handler() http.Handler {
	files, _ := fs.Sub(embedded, "page") // it is there
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("GET /supercluster", answer(func(r *http.Request) (any, error) {
		return orNone(superClusterOf(s.hub.seen(), r.FormValue("name")))
	}))
	mux.HandleFunc("GET /tenant", answer(func(r *http.Request) (any, error) {
		return orNone(tenantOf(s.hub.seen(), r.FormValue("key"), time.Now()))
	}))
	mux.HandleFunc("GET /namespace", answer(func(r *http.Request) (any, error) {
		return orNone(namespaceOf(s.hub.seen(), keyOf(r)))
	}))
	mux.HandleFunc("GET /explain", answer(s.one(func(ctx context.Context, r *http.Request) (any, error) {
		return explain(ctx, s.CLI, s.cfg, s.hub.seen(), keyOf(r))
	})))
	mux.HandleFunc("GET /drain", answer(s.one(func(ctx context.Context, r *http.Request) (any, error) {
		return drain(ctx, s.CLI, s.cfg, s.hub.seen(), r.FormValue("name"))
	})))
	return s.checked(http.StripPrefix("/"+s.token, mux))
}

func keyOf(r *http.Request) types.NamespacedName {
	return types.NamespacedName{Namespace: r.FormValue("key"), Name: r.FormValue("name")}
}

// checked answers what asks for this server by one of its names, from no other page, and with the token.
func (s *server) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			header.Set(name, value)
		}
		origin, site := r.Header.Values("Origin"), r.Header.Get("Sec-Fetch-Site")
		switch first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); {
		case !s.isHost(r.Host):
			http.Error(w, "this is not the host that kubectl vc ui has printed", http.StatusForbidden)
		case len(origin) > 1 || len(origin) == 1 && origin[0] != "http://"+r.Host, site != "" && site != "same-origin" && site != "none":
			http.Error(w, "another page asks for this one", http.StatusForbidden)
		case subtle.ConstantTimeCompare([]byte(first), []byte(s.token)) != 1:
			http.NotFound(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (s *server) isHost(host string) bool {
	for _, known := range s.hosts {
		if strings.EqualFold(host, known) {
			return true
		}
	}
	return false
}

// errNone is the error of what is not there, or not any more.
var errNone = errors.New("it is not there any more")

func orNone[T any](found *T) (any, error) {
	if found == nil {
		return nil, errNone
	}
	return found, nil
}

// answer answers with JSON, or says what is wrong.
func answer(ask func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		found, err := ask(r)
		var encoded []byte
		if err == nil {
			encoded, err = json.Marshal(found)
		}
		switch {
		case errors.Is(err, errNone):
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(encoded) // nobody reads it who has gone
	}
}

// one lets one at a time be tried: others wait, and who goes away ends it.
func (s *server) one(try func(ctx context.Context, r *http.Request) (any, error)) func(r *http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		ctx, cancel := context.WithTimeout(r.Context(), trialTimeout)
		defer cancel()
		select {
		case s.trials <- struct{}{}:
			defer func() { <-s.trials }()
			return try(ctx, r)
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for what is being tried: %w", ctx.Err())
		}
	}
}

// events sends each snapshot, as server-sent events.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	sent, controller := r.Header.Get("Last-Event-ID"), http.NewResponseController(w)
	beats := time.NewTicker(beat)
	defer beats.Stop()
	for {
		message, sequence, next := s.hub.last()
		text := ":\n\n"
		if id := s.token[:8] + "-" + strconv.Itoa(sequence); id != sent {
			text, sent = "id: "+id+"\ndata: "+string(message)+"\n\n", id
		}
		if controller.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
			return
		}
		if _, err := w.Write([]byte(text)); err != nil || controller.Flush() != nil {
			return
		}
		select {
		case <-next:
		case <-beats.C:
		case <-r.Context().Done():
			return
		}
	}
}
