package placer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// emptyCluster returns the kubeconfig of a cluster without objects that no process serves: lists are empty, watches
// send no event, and other requests fail. kube-scheduler needs a client, and waits until the objects that plugins watch
// are listed.
func emptyCluster() *rest.Config {
	return &rest.Config{Host: "http://none.invalid", Transport: emptyServer{}}
}

// emptyServer answers requests in the place of an API server.
type emptyServer struct{}

// requestInfos tells lists and watches from other requests, as an API server does.
var requestInfos = request.RequestInfoFactory{
	APIPrefixes:          map[string]sets.Empty{"api": {}, "apis": {}},
	GrouplessAPIPrefixes: map[string]sets.Empty{"api": {}},
}

// RoundTrip implements http.RoundTripper.
func (emptyServer) RoundTrip(r *http.Request) (*http.Response, error) {
	info, err := requestInfos.NewRequestInfo(r)
	if err != nil {
		return nil, fmt.Errorf("reading a request: %w", err)
	}
	switch {
	case info.Verb == "list":
		return answer(r, http.StatusOK, &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "1"}})
	case info.Verb == "watch" && !r.URL.Query().Has("sendInitialEvents"):
		return silence(r), nil
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	status := apierrors.NewMethodNotSupported(resource, info.Verb).Status()
	return answer(r, int(status.Code), &status)
}

func answer(r *http.Request, code int, object runtime.Object) (*http.Response, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding an answer: %w", err)
	}
	return response(r, code, io.NopCloser(bytes.NewReader(body))), nil
}

// silence returns a stream without events that ends with the request, or when it is closed.
func silence(r *http.Request) *http.Response {
	reader, writer := io.Pipe()
	body := silentBody{reader, writer}
	context.AfterFunc(r.Context(), func() { _ = body.Close() })
	return response(r, http.StatusOK, body)
}

// silentBody is the body of a stream. Closing it ends the stream as an API server would, without an error for who
// reads.
type silentBody struct {
	io.Reader
	events *io.PipeWriter
}

// Close implements io.Closer.
func (b silentBody) Close() error { return b.events.Close() } //nolint:wrapcheck // it never fails

func response(r *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		Request: r, StatusCode: code, Body: body, ContentLength: -1,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}},
	}
}
