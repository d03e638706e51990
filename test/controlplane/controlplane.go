// Package controlplane starts the real API servers of integration tests: etcd and kube-apiserver from bin/, without controllers.
package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// Options describe one control plane.
type Options struct {
	// CRDs are files and folders of CRDs to install; see SuperpoolCRDs.
	CRDs []string
	// DisableAdmission names admission plugins that need a controller which a test does not run.
	DisableAdmission []string
	// ServiceClusterIPRange holds the addresses of Services, in CIDR notation; "" leaves envtest's own.
	ServiceClusterIPRange string
}

// Start starts one control plane for each of options, all at once. stop is never nil, and to be called even after an error.
func Start(options ...Options) (started []*envtest.Environment, stop func(), err error) {
	root, err := Root()
	if err != nil {
		return nil, func() {}, err
	}
	errs := make([]error, len(options))
	var group sync.WaitGroup
	for i, option := range options {
		environment := &envtest.Environment{
			BinaryAssetsDirectory: filepath.Join(root, "bin"), CRDDirectoryPaths: option.CRDs, ErrorIfCRDPathMissing: true,
		}
		if len(option.DisableAdmission) > 0 {
			environment.ControlPlane.GetAPIServer().Configure().Append("disable-admission-plugins", option.DisableAdmission...)
		}
		if option.ServiceClusterIPRange != "" {
			environment.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", option.ServiceClusterIPRange)
		}
		started = append(started, environment)
		group.Go(func() {
			if _, err := environment.Start(); err != nil {
				errs[i] = fmt.Errorf("starting a control plane (make test builds what it needs): %w", err)
			}
		})
	}
	group.Wait()
	return started, func() { stopAll(started) }, errors.Join(errs...)
}

func stopAll(started []*envtest.Environment) {
	var group sync.WaitGroup
	for _, environment := range started {
		group.Go(func() {
			if err := environment.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, "stopping a control plane:", err)
			}
		})
	}
	group.Wait()
}

// Account makes what a file of manifests/base says of a program's rights, and returns its service account, which has these rights and no
// others.
func Account(ctx context.Context, environment *envtest.Environment, file, name string) (*envtest.AuthenticatedUser, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(filepath.Join(root, "manifests", "base", file))
	if err != nil {
		return nil, fmt.Errorf("reading the rights: %w", err)
	}
	admin, err := client.New(environment.Config, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	const namespace = "vc-manager"
	if err := admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); client.IgnoreAlreadyExists(err) != nil {
		return nil, fmt.Errorf("making the namespace: %w", err)
	}
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("parsing %s: %w", file, err)
		}
		if err := admin.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("making %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	user, err := environment.AddUser(envtest.User{
		Name: "system:serviceaccount:" + namespace + ":" + name, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace},
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("making a user: %w", err)
	}
	return user, nil
}

// Scheme returns a scheme with the kinds of Kubernetes and of Superpool.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, tenancyv1alpha1.AddToScheme, schedulerv1alpha1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// SuperpoolCRDs returns the folder of our CRDs.
func SuperpoolCRDs() (string, error) {
	root, err := Root()
	return filepath.Join(root, "manifests", "crds"), err
}

// Root returns the folder of this repository.
func Root() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder, nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", errors.New("no go.mod above the working folder")
		}
		folder = parent
	}
}
