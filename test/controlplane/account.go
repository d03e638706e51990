package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/pki"
)

// User is somebody who reaches a control plane with a client certificate.
type User struct {
	Config     *rest.Config
	KubeConfig []byte
}

// Account applies the objects in a file below manifests that grant a program its rights, and returns the program's
// service account of that namespace and name, which has these rights and no others. They take the place of rights of
// the same names.
func Account(ctx context.Context, controlPlane *ControlPlane, file, namespace, name string) (*User, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	return AccountOf(ctx, controlPlane, root, file, namespace, name)
}

// AccountOf is Account with the manifests of another source tree: the folder of its go.mod.
func AccountOf(ctx context.Context, controlPlane *ControlPlane, source, file, namespace, name string) (*User, error) {
	admin, err := client.New(controlPlane.Config, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if err := admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); client.IgnoreAlreadyExists(err) != nil {
		return nil, fmt.Errorf("making the namespace: %w", err)
	}
	objects, err := apply(ctx, admin, source, file)
	if err != nil {
		return nil, err
	}
	var roles []*unstructured.Unstructured
	for _, object := range objects {
		if kind := object.GetKind(); kind == "ClusterRole" || kind == "Role" {
			roles = append(roles, object)
		}
	}
	for _, role := range roles {
		if err := admin.Create(ctx, binding(role, namespace, name)); client.IgnoreAlreadyExists(err) != nil {
			return nil, fmt.Errorf("binding %s %s: %w", role.GetKind(), role.GetName(), err)
		}
	}
	return controlPlane.user(pki.Certificate{
		User: "system:serviceaccount:" + namespace + ":" + name, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace},
	})
}

// Apply applies the objects in files below manifests.
func Apply(ctx context.Context, controlPlane *ControlPlane, files ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	admin, err := client.New(controlPlane.Config, client.Options{Scheme: Scheme()})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, file := range files {
		if _, err := apply(ctx, admin, root, file); err != nil {
			return err
		}
	}
	return nil
}

func apply(ctx context.Context, admin client.Client, source, file string) (objects []*unstructured.Unstructured, err error) {
	content, err := os.ReadFile(filepath.Join(source, "manifests", file))
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("parsing %s: %w", file, err)
		}
		wanted := client.ApplyConfigurationFromUnstructured(object)
		if err := admin.Apply(ctx, wanted, client.FieldOwner("kubectl"), client.ForceOwnership); err != nil {
			return nil, fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		objects = append(objects, object)
	}
}

// binding returns the binding of a role to a service account, which a script makes where the file has none.
func binding(role client.Object, namespace, name string) client.Object {
	kind := role.GetObjectKind().GroupVersionKind().Kind
	meta := metav1.ObjectMeta{Namespace: role.GetNamespace(), Name: role.GetName() + ":" + name}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role.GetName()}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
	if kind == "ClusterRole" {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
	}
	return &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
}

// user makes a user, with the rights that others give it.
func (c *ControlPlane) user(certificate pki.Certificate) (*User, error) {
	kubeconfig, err := c.authority.Kubeconfig(c.url, certificate)
	if err != nil {
		return nil, fmt.Errorf("making a user: %w", err)
	}
	config, err := restConfig(kubeconfig)
	return &User{Config: config, KubeConfig: kubeconfig}, err
}

// Scheme returns a scheme with the kinds of Kubernetes and of Superpool.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, tenancyv1alpha1.AddToScheme, schedulerv1alpha1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}
