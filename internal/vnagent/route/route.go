// Package route reads requests of the kubelet API: a path and a query become a Request of valid names and typed options, or an
// Error. What is sent on is made from a Request alone, so nothing that a client wrote reaches a backend unread.
//
// Everything here is pure.
package route

import (
	"net/http"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Kind is what a request asks for.
type Kind string

// All kinds. The values are bounded and serve as metric labels.
const (
	Health      Kind = "healthz"
	Logs        Kind = "containerLogs"
	Exec        Kind = "exec"
	Attach      Kind = "attach"
	PortForward Kind = "portForward"
	Run         Kind = "run"
	Pods        Kind = "pods"
	Summary     Kind = "stats/summary"
	Resource    Kind = "metrics/resource"
	Cadvisor    Kind = "metrics/cadvisor"
	Probes      Kind = "metrics/probes"
)

// Request is a valid request. Names are those that the client used: a tenant's.
type Request struct {
	Kind Kind
	// Namespace and Pod are set for Logs, Exec, Attach, PortForward and Run, Container for all of these but PortForward.
	Namespace string
	Pod       string
	Container string
	// UID is that of the tenant's pod, "" if the client named none.
	UID     string
	Options Options
}

// Error says why a request is refused. It never quotes the request.
type Error struct {
	// Code is the HTTP status: 400, 404 or 405.
	Code   int
	Reason string
}

func (e *Error) Error() string { return e.Reason }

func badRequest(reason string) *Error { return &Error{Code: http.StatusBadRequest, Reason: reason} }

func notFound() *Error {
	return &Error{Code: http.StatusNotFound, Reason: "no such path"}
}

var (
	readOnly  = []string{http.MethodGet}
	streaming = []string{http.MethodGet, http.MethodPost}
	writeOnly = []string{http.MethodPost}
)

// fixed holds the paths without names.
var fixed = map[string]Kind{
	"/healthz":          Health,
	"/pods":             Pods,
	"/stats/summary":    Summary,
	"/metrics/resource": Resource,
	"/metrics/cadvisor": Cadvisor,
	"/metrics/probes":   Probes,
}

// ofPods holds the paths that name a pod: /<kind>/<namespace>/<pod>[/<uid>][/<container>].
var ofPods = map[string]struct {
	methods        []string
	uid, container bool
}{
	string(Logs):        {methods: readOnly, container: true},
	string(Exec):        {methods: streaming, uid: true, container: true},
	string(Attach):      {methods: streaming, uid: true, container: true},
	string(PortForward): {methods: streaming, uid: true},
	string(Run):         {methods: writeOnly, uid: true, container: true},
}

// uidForm is what API servers and kubelets use as UIDs: RFC 4122, or hexadecimal digits for static pods.
var uidForm = regexp.MustCompile(`^[0-9A-Za-z](?:[-0-9A-Za-z]{0,62}[0-9A-Za-z])?$`)

// Parse reads a request. path is the escaped path, as it was sent: segments are compared exactly, and nothing is cleaned,
// joined or unescaped. No valid name needs an escape, so a path that has one is refused.
func Parse(method, path, query string) (Request, *Error) {
	request, methods, err := parsePath(path)
	if err != nil {
		return Request{}, err
	}
	allowed := false
	for _, candidate := range methods {
		allowed = allowed || candidate == method
	}
	if !allowed {
		return Request{}, &Error{Code: http.StatusMethodNotAllowed, Reason: "method not allowed"}
	}
	if request.Options, err = parseOptions(request.Kind, query); err != nil {
		return Request{}, err
	}
	return request, nil
}

func parsePath(path string) (Request, []string, *Error) {
	if strings.ContainsAny(path, "%\\;\x00") {
		return Request{}, nil, badRequest("path has characters that no name has")
	}
	if kind, exists := fixed[path]; exists {
		return Request{Kind: kind}, readOnly, nil
	}
	segments := strings.Split(path, "/")
	if len(segments) < 2 || segments[0] != "" {
		return Request{}, nil, notFound()
	}
	form, exists := ofPods[segments[1]]
	if !exists {
		return Request{}, nil, notFound()
	}
	names := segments[2:]
	least := 2
	if form.container {
		least = 3
	}
	if len(names) != least && (!form.uid || len(names) != least+1) {
		return Request{}, nil, notFound()
	}
	request := Request{Kind: Kind(segments[1]), Namespace: names[0], Pod: names[1]}
	if len(names) == least+1 {
		request.UID = names[2]
		if !uidForm.MatchString(request.UID) {
			return Request{}, nil, badRequest("not a UID")
		}
	}
	if form.container {
		request.Container = names[len(names)-1]
	}
	return request, form.methods, checkNames(request, form.container)
}

func checkNames(request Request, container bool) *Error {
	if len(validation.IsDNS1123Label(request.Namespace)) > 0 {
		return badRequest("not a name of a namespace")
	}
	if len(validation.IsDNS1123Subdomain(request.Pod)) > 0 {
		return badRequest("not a name of a pod")
	}
	if container && len(validation.IsDNS1123Label(request.Container)) > 0 {
		return badRequest("not a name of a container")
	}
	return nil
}

// OfPod says whether the request names a pod.
func (r Request) OfPod() bool {
	_, exists := ofPods[string(r.Kind)]
	return exists
}

// Upgrades says whether the request asks for a stream in both directions.
func (r Request) Upgrades() bool {
	return r.Kind == Exec || r.Kind == Attach || r.Kind == PortForward
}

// KubeletPath returns the request's path at a kubelet. namespace and uid replace those of the request; without uid there is
// no such segment.
func (r Request) KubeletPath(namespace, uid string) string {
	form, exists := ofPods[string(r.Kind)]
	if !exists {
		return "/" + string(r.Kind)
	}
	path := "/" + string(r.Kind) + "/" + namespace + "/" + r.Pod
	if form.uid && uid != "" {
		path += "/" + uid
	}
	if form.container {
		path += "/" + r.Container
	}
	return path
}

// APIServerPath returns the path of the pod's subresource at an API server. The request must be OfPod; a Run is an exec there.
func (r Request) APIServerPath(namespace string) string {
	subresource := map[Kind]string{Logs: "log", Exec: "exec", Run: "exec", Attach: "attach", PortForward: "portforward"}[r.Kind]
	return "/api/v1/namespaces/" + namespace + "/pods/" + r.Pod + "/" + subresource
}
