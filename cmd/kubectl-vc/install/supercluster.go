package install

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/manifests/parameters"
)

// checkID says why a text is no id of a super cluster.
func checkID(id string) error {
	if err := parameters.ID.Check(id); err != nil {
		return fmt.Errorf("ID %w", err)
	}
	return nil
}

// kubeconfig is that of an administrator of a super cluster.
type kubeconfig struct{ file, context string }

func (k *kubeconfig) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&k.file, "super-kubeconfig", "", "kubeconfig of an administrator of the super cluster; it is stored nowhere")
	flags.StringVar(&k.context, "super-context", "", "context of that kubeconfig; default: its current one")
	_ = command.MarkFlagFilename("super-kubeconfig") // the flag is there
}

// isGiven returns whether there is one.
func (k *kubeconfig) isGiven() bool { return k.file != "" }

// command returns a command for the super cluster.
func (k *kubeconfig) command(rest string) string {
	if k.context != "" {
		return "kubectl --kubeconfig " + k.file + " --context " + k.context + " " + rest
	}
	return "kubectl --kubeconfig " + k.file + " " + rest
}

// flags returns the flags by which a verb gets it.
func (k *kubeconfig) flags() string {
	if k.context != "" {
		return "--super-kubeconfig " + k.file + " --super-context " + k.context
	}
	return "--super-kubeconfig " + k.file
}

// load returns where a super cluster is, with the contents of files in place of their names, and how its administrator
// reaches it.
func (k *kubeconfig) load() (*clientcmdapi.Cluster, *rest.Config, error) {
	if !k.isGiven() {
		return nil, nil, errors.New("--super-kubeconfig is missing: the kubeconfig of an administrator of the super cluster")
	}
	loaded, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: k.file}).Load()
	if err != nil {
		return nil, nil, fmt.Errorf("--super-kubeconfig: %w", err)
	}
	if k.context != "" {
		loaded.CurrentContext = k.context
	}
	if err := errors.Join(clientcmdapi.MinifyConfig(loaded), clientcmdapi.FlattenConfig(loaded)); err != nil {
		return nil, nil, fmt.Errorf("--super-kubeconfig %s: %w", k.file, err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*loaded, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("--super-kubeconfig %s: %w", k.file, err)
	}
	place := loaded.Clusters[loaded.Contexts[loaded.CurrentContext].Cluster]
	for _, address := range []string{place.Server, place.ProxyURL} {
		if parsed, err := url.Parse(address); err == nil && parsed.User != nil {
			return nil, nil, fmt.Errorf("--super-kubeconfig %s: server or proxy-url has a user name in it, which would be stored in Secrets: give one without", k.file)
		}
	}
	place.LocationOfOrigin, place.Extensions = "", nil
	return place, config, nil
}

// endpoint returns host and port of a server's URL.
func endpoint(server string) (host string, port int64, err error) {
	parsed, err := url.Parse(server)
	if err != nil || parsed.Hostname() == "" || parsed.Scheme != "https" && parsed.Scheme != "http" {
		return "", 0, fmt.Errorf("its cluster has no server URL, but %q", server)
	}
	const https = 443
	if parsed.Port() == "" {
		return parsed.Hostname(), https, nil
	}
	port, err = strconv.ParseInt(parsed.Port(), 10, 32)
	return parsed.Hostname(), port, err //nolint:wrapcheck // url.Parse has seen that it is a number
}

// isOwn returns whether a host is that of whoever asks: no pod reaches a super cluster by it.
func isOwn(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || address != nil && (address.IsLoopback() || address.IsUnspecified())
}

// super reaches a super cluster.
func (c *verbs) super(ctx context.Context, k *kubeconfig) (*cluster, *clientcmdapi.Cluster, error) {
	place, config, err := k.load()
	if err != nil {
		return nil, nil, err
	}
	super, err := c.connect(ctx, config, "the cluster of "+k.file)
	return super, place, err
}

// superID returns the ConfigMap with the id of a super cluster, nil where it has none.
func superID(ctx context.Context, super client.Reader) (*corev1.ConfigMap, error) {
	name := types.NamespacedName{Namespace: schedulerv1alpha1.SuperClusterInfoNamespace, Name: schedulerv1alpha1.SuperClusterInfoName}
	info, err := configMap(ctx, super, name)
	if err != nil || info == nil {
		return nil, err
	}
	if err := checkID(info.Data[schedulerv1alpha1.SuperClusterInfoKey]); err != nil {
		return nil, fmt.Errorf("ConfigMap %s of the super cluster: %w", name, err) // and no command is made of it
	}
	return info, nil
}

// configMap returns a ConfigMap, nil where there is none.
func configMap(ctx context.Context, cluster client.Reader, name types.NamespacedName) (*corev1.ConfigMap, error) {
	found := &corev1.ConfigMap{}
	err := cluster.Get(ctx, name, found)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // as it says
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	return found, nil
}

// virtualNode returns the virtual Node of a super cluster, nil where there is none.
func virtualNode(ctx context.Context, meta client.Reader, id string) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := meta.Get(ctx, types.NamespacedName{Name: id}, node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // as it says
	case err != nil:
		return nil, fmt.Errorf("reading the virtual Node: %w", err)
	case node.Labels[schedulerv1alpha1.LabelVirtualNode] != id:
		return nil, fmt.Errorf("node %s of the meta cluster is no virtual Node: the super cluster needs another ID", id)
	}
	return node, nil
}

// owned returns an error unless the super cluster may be one with that id of the pool of this meta cluster: it is no
// other one, and no other pool has it. id is "" where it has none yet.
func (k *kubeconfig) owned(ctx context.Context, super, meta *cluster, id string) error {
	if super.uid == meta.uid {
		return fmt.Errorf("%s is the meta cluster itself, and a syncer's credentials would open what is there: give the kubeconfig of another cluster", super.name)
	}
	switch info, err := superID(ctx, super); {
	case err != nil:
		return err
	case info != nil && info.Data[schedulerv1alpha1.SuperClusterInfoKey] != id:
		has := info.Data[schedulerv1alpha1.SuperClusterInfoKey]
		return fmt.Errorf("%s is super cluster %q: use that ID, or have it leave first (kubectl vc leave %s %s)", super.name, has, has, k.flags())
	}
	switch record, err := configMap(ctx, super, types.NamespacedName{Namespace: schedulerv1alpha1.AuthorityNamespace, Name: schedulerv1alpha1.AuthorityName}); {
	case err != nil:
		return err
	case record != nil && types.UID(record.Data[schedulerv1alpha1.AuthorityMetaKey]) != meta.uid:
		has := record.Data[schedulerv1alpha1.AuthorityIDKey]
		if checkID(has) != nil {
			has = "ID"
		}
		return fmt.Errorf("%s is in the pool of another meta cluster, whose namespace kube-system has UID %s, and here it is %s: kubectl vc leave %s there. "+
			"Where that pool is gone, and all that tenants run here may be deleted: %s", super.name, record.Data[schedulerv1alpha1.AuthorityMetaKey], meta.uid, has,
			k.command("delete configmap -n "+schedulerv1alpha1.AuthorityNamespace+" "+schedulerv1alpha1.AuthorityName))
	}
	if id == "" {
		return nil
	}
	node, err := virtualNode(ctx, meta, id)
	if err != nil || node == nil {
		return err
	}
	if recorded := types.UID(node.Annotations[schedulerv1alpha1.AnnotationSuperClusterUID]); recorded != "" && recorded != super.uid {
		return fmt.Errorf("%s is another one than super cluster %s: its namespace kube-system has UID %s, and that of the other %s. Give it an ID of its own. "+
			"If it is to take the place of the other, and what tenants run there is lost: kubectl annotate node %s %s-", super.name, id, super.uid, recorded,
			id, schedulerv1alpha1.AnnotationSuperClusterUID)
	}
	return nil
}

// token returns the token that a super cluster has made for a service account, "" while it has made none.
func token(ctx context.Context, super client.Reader, account string) (string, error) {
	secret := &corev1.Secret{}
	err := super.Get(ctx, types.NamespacedName{Namespace: systemNamespace, Name: account + "-token"}, secret)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the token of %s: %w", account, err)
	}
	return string(secret.Data[corev1.ServiceAccountTokenKey]), nil
}

// accountKubeconfig returns a kubeconfig of a super cluster with the token of a service account alone.
func accountKubeconfig(place *clientcmdapi.Cluster, id, account, token string) ([]byte, error) {
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{id: place},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{account: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{id: {Cluster: id, AuthInfo: account}},
		CurrentContext: id,
	})
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig of %s: %w", account, err)
	}
	return text, nil
}

// encoded returns bytes as a Secret has them in YAML.
func encoded(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
