package builders

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// VirtualCluster returns a VirtualCluster of namespace default, whose kubeconfig lies in the Secret of its name.
func VirtualCluster(name string) *tenancyv1alpha1.VirtualCluster {
	return &tenancyv1alpha1.VirtualCluster{
		ObjectMeta: meta(metav1.NamespaceDefault, name),
		Spec:       tenancyv1alpha1.VirtualClusterSpec{KubeconfigSecretRef: &tenancyv1alpha1.SecretKeyRef{Name: name}},
	}
}

// Kubeconfig returns a kubeconfig with one context, for a server and a token.
func Kubeconfig(server, token string) []byte {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "x"
	data, err := clientcmd.Write(*config)
	if err != nil {
		panic(err)
	}
	return data
}

// KubeconfigSecret returns a Secret of namespace default that holds a kubeconfig under the key that ours and Cluster
// API's share.
func KubeconfigSecret(name string, kubeconfig []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Data:       map[string][]byte{tenancyv1alpha1.DefaultKubeconfigKey: kubeconfig},
	}
}

// Owner returns the owner that super objects name of an object with this UID, in a namespace of the tenant with this
// cluster key.
func Owner(clusterKey, namespace string, uid types.UID) tenancy.Owner {
	return tenancy.Owner{
		ClusterKey: clusterKey, VirtualCluster: types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: clusterKey},
		VirtualClusterUID: UID(clusterKey), Namespace: namespace, UID: uid,
	}
}

// Owned writes owner on a super object, and returns it.
func Owned[T client.Object](object T, owner tenancy.Owner) T {
	tenancy.SetOwner(object, owner)
	return object
}

// Bind makes a pod of a tenant one that the syncer of r1 has bound to the node in its spec, and returns it.
func Bind(pod *corev1.Pod) *corev1.Pod {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, tenancyv1alpha1.AnnotationBoundBy, "r1")
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	return pod
}
