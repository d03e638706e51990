package policy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/pod-security-admission/api"
	podsecurity "k8s.io/pod-security-admission/policy"
	podsecuritytest "k8s.io/pod-security-admission/test"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
)

// TestPodSecurity runs the test pods that Pod Security publishes through Check: those that a level allows and those
// that it forbids, of all its checks, at both levels.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	server := newPodSecurityServer(t)
	served := httptest.NewServer(server)
	t.Cleanup(served.Close)
	config := &rest.Config{Host: served.URL, QPS: -1}
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	podsecuritytest.Run(t, podsecuritytest.Options{ClientConfig: config})
	require.Greater(t, server.checked.Load(), int64(200), "pods that were checked")
}

// podSecurityServer answers as an API server whose admission is Check in the namespaces of the newest version. Policies
// have no older ones: in their namespaces the checks of that version decide.
type podSecurityServer struct {
	t        *testing.T
	older    podsecurity.Evaluator
	policies map[string]*policy.Policy
	checked  atomic.Int64
}

func newPodSecurityServer(t *testing.T) *podSecurityServer {
	t.Helper()
	evaluator, err := podsecurity.NewEvaluator(podsecurity.DefaultChecks(), nil)
	require.NoError(t, err)
	newest := api.MajorMinorVersion(1, 0)
	for _, check := range podsecurity.DefaultChecks() {
		for _, version := range check.Versions {
			if newest.Older(version.MinimumVersion) {
				newest = version.MinimumVersion
			}
		}
	}
	server := &podSecurityServer{t: t, older: evaluator, policies: map[string]*policy.Policy{}}
	for _, level := range []tenancyv1alpha1.PodSecurityLevel{tenancyv1alpha1.PodSecurityBaseline, tenancyv1alpha1.PodSecurityRestricted} {
		server.policies[fmt.Sprintf("podsecurity-%s-%d-%d", level, newest.Major(), newest.Minor())] = policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Pods.SecurityLevel = level
		})
	}
	return server
}

// refusals returns why Pod Security forbids a pod in a namespace.
func (s *podSecurityServer) refusals(namespace string, pod *corev1.Pod) []string {
	for i := range pod.Spec.Volumes {
		if volume := &pod.Spec.Volumes[i]; volume.VolumeSource == (corev1.VolumeSource{}) {
			volume.EmptyDir = &corev1.EmptyDirVolumeSource{} // as API servers do
		}
	}
	var texts []string
	if rules, newest := s.policies[namespace]; newest {
		s.checked.Add(1)
		for _, refusal := range policy.Check(rules, pod, plenty()) {
			if strings.HasPrefix(refusal.Message, "Pod Security forbids ") { // others are for other tests
				texts = append(texts, refusal.Message)
			}
		}
		return texts
	}
	var level api.Level
	var minor int
	fields := strings.Split(namespace, "-")
	level = api.Level(fields[1])
	_, err := fmt.Sscan(fields[3], &minor)
	require.NoError(s.t, err)
	for _, result := range s.older.EvaluatePod(api.LevelVersion{Level: level, Version: api.MajorMinorVersion(1, minor)}, &pod.ObjectMeta, &pod.Spec) {
		if !result.Allowed {
			texts = append(texts, result.ForbiddenReason+result.ForbiddenDetail)
		}
	}
	return texts
}

// refuse answers that a pod is forbidden, and returns the body.
func refuse(writer http.ResponseWriter, texts []string) ([]byte, error) {
	status := apierrors.NewForbidden(corev1.Resource("pods"), "", fmt.Errorf("%s", strings.Join(texts, "; "))).Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	writer.WriteHeader(http.StatusForbidden)
	return json.Marshal(status)
}

// ServeHTTP implements http.Handler.
func (s *podSecurityServer) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	writer.Header().Set("Content-Type", "application/json")
	body, err := io.ReadAll(request.Body)
	var namespace string
	if path := strings.Split(request.URL.Path, "/namespaces/"); len(path) == 2 {
		namespace, _, _ = strings.Cut(path[1], "/")
	}
	switch {
	case err != nil || request.Method != http.MethodPost:
		body = []byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	case strings.HasSuffix(request.URL.Path, "/pods"):
		pod := &corev1.Pod{}
		err = json.Unmarshal(body, pod)
		if texts := s.refusals(namespace, pod); len(texts) > 0 {
			body, err = refuse(writer, texts)
		}
	case strings.HasSuffix(request.URL.Path, "/deployments"):
		deployment := &appsv1.Deployment{}
		err = json.Unmarshal(body, deployment)
		pod := &corev1.Pod{ObjectMeta: deployment.Spec.Template.ObjectMeta, Spec: deployment.Spec.Template.Spec}
		switch texts := s.refusals(namespace, pod); {
		case len(texts) == 0:
		case ptr.Deref(pod.Spec.HostUsers, false) && slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "procMount") }):
			body, err = refuse(writer, texts) // as API servers do, whoever asks
		default:
			writer.Header().Set("Warning", fmt.Sprintf("299 - %q", strings.Join(texts, "; ")))
		}
	}
	if err == nil {
		_, err = writer.Write(body)
	}
	if err != nil {
		s.t.Errorf("%s %s: %v", request.Method, request.URL, err)
	}
}
