// Package route parses requests of the kubelet API: Parse makes of a path and a query a Request of valid names and
// typed options, or an Error. Paths and queries for backends are built from a Request alone, so that nothing of a
// client's URL reaches a backend unparsed.
//
// Everything here is pure.
package route

import (
	"net/http"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Kind is the endpoint of the kubelet API that a request is for.
type Kind string

// All kinds. They are values of the metrics' label route.
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

// Request is a valid request. Its names are the tenant's, as the client sent them.
type Request struct {
	// Kind is the endpoint.
	Kind Kind
	// Namespace and Pod are set for Logs, Exec, Attach, PortForward and Run, Container for all of these but
	// PortForward.
	Namespace string
	Pod       string
	Container string
	// UID is that of the tenant's pod, "" if the client named none.
	UID string
	// Options holds the parsed query.
	Options Options
}

// Error is why Parse refuses a request. Its text never quotes the request.
type Error struct {
	// Code is the HTTP status: 400, 404 or 405.
	Code int
	// Reason is the text of the response.
	Reason string
}

// Error implements error.
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

// nodePaths holds the paths that name no pod.
var nodePaths = map[string]Kind{
	"/healthz":          Health,
	"/pods":             Pods,
	"/stats/summary":    Summary,
	"/metrics/resource": Resource,
	"/metrics/cadvisor": Cadvisor,
	"/metrics/probes":   Probes,
}

// podPaths holds the paths that name a pod: /<kind>/<namespace>/<pod>[/<uid>][/<container>].
var podPaths = map[string]struct {
	methods        []string
	uid, container bool
}{
	string(Logs):        {methods: readOnly, container: true},
	string(Exec):        {methods: streaming, uid: true, container: true},
	string(Attach):      {methods: streaming, uid: true, container: true},
	string(PortForward): {methods: streaming, uid: true},
	string(Run):         {methods: writeOnly, uid: true, container: true},
}

// uidPattern matches the UIDs of API servers and kubelets: RFC 4122, or hexadecimal digits for static pods.
var uidPattern = regexp.MustCompile(`^[0-9A-Za-z](?:[-0-9A-Za-z]{0,62}[0-9A-Za-z])?$`)

// Parse returns the request that method, path and query make, or an Error with the status to answer. path is the
// escaped path as the client sent it: its segments are compared exactly; nothing is cleaned, joined or unescaped. No
// valid name needs an escape, so a path with one is refused.
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
	if kind, exists := nodePaths[path]; exists {
		return Request{Kind: kind}, readOnly, nil
	}
	segments := strings.Split(path, "/")
	if len(segments) < 2 || segments[0] != "" {
		return Request{}, nil, notFound()
	}
	form, exists := podPaths[segments[1]]
	if !exists {
		return Request{}, nil, notFound()
	}
	names := segments[2:]
	withoutUID := 2
	if form.container {
		withoutUID = 3
	}
	if len(names) != withoutUID && (!form.uid || len(names) != withoutUID+1) {
		return Request{}, nil, notFound()
	}
	request := Request{Kind: Kind(segments[1]), Namespace: names[0], Pod: names[1]}
	if len(names) == withoutUID+1 {
		request.UID = names[2]
		if !uidPattern.MatchString(request.UID) {
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

// OfPod reports whether the request names a pod.
func (r Request) OfPod() bool {
	_, exists := podPaths[string(r.Kind)]
	return exists
}

// Upgrades reports whether the request needs an upgraded connection: a stream in both directions.
func (r Request) Upgrades() bool {
	return r.Kind == Exec || r.Kind == Attach || r.Kind == PortForward
}

// KubeletPath returns the request's path at a kubelet. namespace and uid, the super pod's, replace those of the
// request; a uid of "" leaves out that segment.
func (r Request) KubeletPath(namespace, uid string) string {
	form, exists := podPaths[string(r.Kind)]
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

// APIServerPath returns the path of the pod's subresource at an API server, in the super pod's namespace. OfPod must be
// true; a Run is an exec there.
func (r Request) APIServerPath(namespace string) string {
	subresource := map[Kind]string{Logs: "log", Exec: "exec", Run: "exec", Attach: "attach", PortForward: "portforward"}[r.Kind]
	return "/api/v1/namespaces/" + namespace + "/pods/" + r.Pod + "/" + subresource
}
