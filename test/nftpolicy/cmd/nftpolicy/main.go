// Command nftpolicy enforces the NetworkPolicies of a cluster on one node, by nft(8) in the network namespace that it
// runs in. It is for the bed of real nodes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/superpool/superpool/test/nftpolicy"
)

// retry is how long a ruleset that nft refused waits for the next change at most.
const retry = time.Second

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the cluster")
	node := flag.String("node", "", "name of the node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT) //nolint:forbidigo // the process' own
	err := run(ctx, *kubeconfig, *node)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, node string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods, namespaces, policies := factory.Core().V1().Pods(), factory.Core().V1().Namespaces(), factory.Networking().V1().NetworkPolicies()
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { signal() }, UpdateFunc: func(any, any) { signal() }, DeleteFunc: func(any) { signal() },
	}
	for _, informer := range []cache.SharedIndexInformer{pods.Informer(), namespaces.Informer(), policies.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watching: %w", err)
		}
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	last := ""
	for ctx.Err() == nil {
		state := &nftpolicy.State{Node: node}
		state.Pods, _ = list[*corev1.Pod](pods.Lister().List)
		state.Namespaces, _ = list[*corev1.Namespace](namespaces.Lister().List)
		state.Policies, _ = list[*networkingv1.NetworkPolicy](policies.Lister().List)
		again := time.Hour
		if next := nftpolicy.Ruleset(state); next != last {
			if err := load(ctx, next); err != nil {
				klog.FromContext(ctx).Error(err, "Loading the ruleset failed", "ruleset", next)
				again = retry
			} else {
				klog.FromContext(ctx).Info("Loaded a ruleset", "bytes", len(next))
				last = next
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(again):
		}
	}
	return nil
}

func list[T any](all func(labels.Selector) ([]T, error)) ([]T, error) {
	return all(labels.Everything())
}

// load gives a ruleset to nft, which takes all of it or nothing.
func load(ctx context.Context, ruleset string) error {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin = strings.NewReader(ruleset)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, output)
	}
	return nil
}
