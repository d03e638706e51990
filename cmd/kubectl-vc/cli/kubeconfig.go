package cli

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubeconfig"
	"github.com/superpool/superpool/internal/tenantclient"
)

// Administrator returns the administrator's kubeconfig of a tenant.
func Administrator(ctx context.Context, cluster client.Client, vc *tenancyv1alpha1.VirtualCluster) ([]byte, error) {
	at, key := types.NamespacedName{Namespace: vc.Namespace, Name: vc.Name + "-kubeconfig"}, tenancyv1alpha1.DefaultKubeconfigKey
	switch ref := vc.Spec.KubeconfigSecretRef; {
	case ref != nil:
		at.Name = ref.Name
		if ref.Key != "" {
			key = ref.Key
		}
	case vc.Spec.ClusterVersionName == "":
		at = types.NamespacedName{Namespace: vc.Status.ClusterNamespace, Name: tenancyv1alpha1.SecretAdminKubeconfig}
	}
	secret := &corev1.Secret{}
	if err := cluster.Get(ctx, at, secret); err != nil {
		return nil, fmt.Errorf("getting the kubeconfig of %s: %w: kubectl describe virtualcluster %s", vc.Name, err, Named(vc))
	}
	if len(secret.Data[key]) == 0 {
		return nil, fmt.Errorf("the kubeconfig of %s: Secret %s has no key %s: kubectl describe virtualcluster %s", vc.Name, at, key, Named(vc))
	}
	text, err := current(secret.Data[key])
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of %s: Secret %s: %w", vc.Name, at, err)
	}
	return text, nil
}

// current returns the current context of a kubeconfig, and nothing else of it. Whoever wrote it may have it run a program
// here, or send files: such a one is an error.
func current(text []byte) ([]byte, error) {
	if _, err := kubeconfig.Parse(text); err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	raw, err := clientcmd.Load(text)
	if err == nil {
		err = clientcmdapi.MinifyConfig(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("it has no current context: %w", err)
	}
	return clientcmd.Write(*raw) //nolint:wrapcheck // it says what it did
}

// Tenant returns a client of a tenant by its administrator's kubeconfig. Answers are bounded, warnings are not printed, and
// redirects are not followed: whoever answers is the tenant's own.
func Tenant(admin []byte) (kubernetes.Interface, error) {
	config, err := kubeconfig.Parse(admin)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	config = tenantclient.New(nil).Config(config)
	config.Timeout = RequestTimeout
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the tenant: %w", err)
	}
	return api, nil
}
