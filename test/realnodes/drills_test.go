//go:build realnodes

package realnodes_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// drilled is a tenant of a test.
type drilled struct {
	meta *cluster
	name string
	key  string
	// members of etcd and API servers are so many.
	members, servers int
	// number makes its ranges and ports its own.
	number int
	// written is how many ConfigMaps it has.
	written int
}

// TestDrills: a control plane with three members of etcd loses programs, pods and authorities. Nothing that was written is
// lost, and nobody lends a hand.
func TestDrills(t *testing.T) {
	t.Parallel()
	d := newDrilled(t, &drilled{name: "drilled", members: 3, servers: 2, number: 101})
	d.drill(t, "a member of etcd is killed", func() { d.kill(t, "etcd-1") })
	d.drill(t, "two members of etcd are killed", func() { d.kill(t, "etcd-0", "etcd-2") })
	d.drill(t, "all pods of etcd are deleted", func() { d.meta.run(t, d.key, "delete", "pods", "etcd-0", "etcd-1", "etcd-2") })
	d.drill(t, "all pods are deleted at once, without a word", func() {
		d.meta.run(t, d.key, "delete", "pods", "-l", "app.kubernetes.io/managed-by=vc-manager", "--grace-period=0", "--force")
	})
	d.drill(t, "the volume of a member is lost", func() {
		before := d.meta.run(t, d.key, "get", "pvc/data-etcd-1", "-o", "jsonpath={.metadata.uid}")
		d.meta.run(t, d.key, "delete", "pvc/data-etcd-1", "--wait=false")
		d.meta.run(t, d.key, "delete", "pod/etcd-1")
		eventually(t, "it is a member with another claim", func(context.Context) (bool, error) {
			claims, err := d.meta.try(t, d.key, "get", "configmap/etcd", "-o", "jsonpath={.data.claims}")
			return err == nil && strings.Contains(claims, "data-etcd-1=") && !strings.Contains(claims, before), nil
		})
	})
	d.drill(t, "a member is sick in an upgrade", func() { d.upgradeSick(t) })
	d.drill(t, "vc-manager is killed in an upgrade", func() {
		d.upgrade(t, 20000)
		killed := map[string]bool{}
		eventually(t, "both vc-managers are killed, twice", func(ctx context.Context) (bool, error) { // kubelets wait longer each time before they start it again
			running, _ := exec.CommandContext(ctx, "pgrep", "-x", "-r", "R,S,D", "vc-manager").Output() // it fails where there is none
			for _, process := range strings.Fields(string(running)) {
				killed[process] = exec.CommandContext(ctx, "kill", "-KILL", process).Run() == nil || killed[process]
			}
			return len(killed) >= 4, nil
		})
		d.upgraded(t, 20000)
	})
	began := time.Now()
	d.drill(t, "authorities are replaced", func() {
		d.patch(t, "rotateAfter", time.Now())
		d.rotated(t, "until spec.distrustAfter, which is not set")
	})
	d.drill(t, "those of before are trusted no more", func() {
		d.patch(t, "distrustAfter", time.Now().Add(2*time.Second))
		d.rotated(t, "True")
	})
	t.Logf("a rotation takes %.0f s", time.Since(began).Seconds())
	d.meta.shortLived(t, d.name)
}

// upgrade gives etcd and the API servers another argument.
func (d *drilled) upgrade(t *testing.T, n int) {
	t.Helper()
	d.meta.run(t, "default", "patch", "clusterversion", d.name, "--type=merge", "-p", fmt.Sprintf(
		`{"spec": {"etcd": {"extraArgs": {"snapshot-count": "%[1]d"}}, "apiServer": {"extraArgs": {"max-requests-inflight": "%[1]d"}}}}`, n))
}

// upgraded waits until all pods have that argument.
func (d *drilled) upgraded(t *testing.T, n int) {
	t.Helper()
	for component, argument := range map[string]string{"etcd": "--snapshot-count=", "kube-apiserver": "--max-requests-inflight="} {
		require.NoError(t, wait.PollUntilContextTimeout(t.Context(), interval, 5*time.Minute, true, func(context.Context) (bool, error) {
			commands, err := d.meta.try(t, d.key, "get", "pods", "-l", "app.kubernetes.io/name="+component, "-o", `jsonpath={range .items[*]}{.spec.containers[0].command}{"\n"}{end}`)
			pods := strings.Count(commands, "\n")
			return err == nil && pods > 0 && strings.Count(commands, fmt.Sprint(argument, n)) == pods, nil
		}), argument)
	}
}

// upgradeSick takes a member its data, upgrades, and gives the data back: meanwhile that member alone gets another pod, and
// it does not start without.
func (d *drilled) upgradeSick(t *testing.T) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(bed(t), "nodes", "meta", "var", "local-path-provisioner", "*_"+d.key+"_data-etcd-2", "data"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, os.Rename(found[0], found[0]+"-taken"))
	d.meta.run(t, d.key, "delete", "pod/etcd-2")
	pods := func(member string) string {
		said, _ := d.meta.try(t, d.key, "get", "pod", member, "-o", "jsonpath={.metadata.uid} {.spec.containers[0].command}")
		return said
	}
	others := pods("etcd-0") + pods("etcd-1")
	require.Contains(t, others, "etcd")
	d.upgrade(t, 30000)
	eventually(t, "the sick one is replaced", func(context.Context) (bool, error) {
		return strings.Contains(pods("etcd-2"), "--snapshot-count=30000"), nil
	})
	eventually(t, "it does not start", func(context.Context) (bool, error) {
		said, err := d.meta.try(t, d.key, "logs", "etcd-2", "--tail=20")
		return err == nil && strings.Contains(said, "couldn't find local name"), nil
	})
	require.Equal(t, others, pods("etcd-0")+pods("etcd-1"), "the others go on")
	require.NoError(t, os.RemoveAll(found[0]))
	require.NoError(t, os.Rename(found[0]+"-taken", found[0]))
	d.upgraded(t, 30000)
}

// newDrilled makes such a tenant, which ends with the test.
func newDrilled(t *testing.T, d *drilled) *drilled {
	t.Helper()
	d.meta = connect(t, "meta")
	spec := d.meta.run(t, "default", "get", "clusterversion", "v1.37", "-o", `jsonpath={.spec}`)
	d.meta.apply(t, "default", fmt.Sprintf(`{"apiVersion": "tenancy.x-k8s.io/v1alpha1", "kind": "ClusterVersion", "metadata": {"name": %q}, "spec": %s}`, d.name, spec))
	d.meta.run(t, "default", "patch", "clusterversion", d.name, "--type=merge", "-p", fmt.Sprintf(
		`{"spec": {"backup": null, "etcd": {"replicas": %d}, "apiServer": {"replicas": %d}}}`, d.members, d.servers))
	t.Cleanup(func() {
		for _, object := range []string{"virtualcluster/", "clusterversion/"} {
			output, err := d.meta.command(context.WithoutCancel(t.Context()), t, "default", "delete", object+d.name, "--ignore-not-found", "--timeout=180s").CombinedOutput()
			if err != nil {
				t.Errorf("%s", output)
			}
		}
	})
	d.drill(t, "it is made", func() {
		d.meta.apply(t, "default", fmt.Sprintf(`{"apiVersion": "tenancy.x-k8s.io/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": %[1]q, "namespace": "default"}, "spec": {
			"clusterVersionName": %[1]q, "serviceCIDRs": ["10.%[2]d.0.0/16"], "serviceNodePortRange": "%[3]d00-%[3]d49",
			"exposure": {"type": "NodePort", "hosts": [%[4]q], "nodePort": %[5]d}}}`, d.name, d.number, 225+d.number, addressOfNode(t, d.meta, "node-1"), 30344+d.number))
		d.meta.run(t, "default", "wait", "virtualcluster/"+d.name, "--for=create", "--timeout=10s")
		d.meta.run(t, "default", "wait", "virtualcluster/"+d.name, "--for=condition=UpToDate", "--timeout=300s")
		d.key = d.meta.run(t, "default", "get", "virtualcluster", d.name, "-o", "jsonpath={.status.clusterNamespace}")
	})
	return d
}

// kill kills the programs of members of etcd, and waits until they were started again.
func (d *drilled) kill(t *testing.T, members ...string) {
	t.Helper()
	restarts := func(member string) string {
		said, _ := d.meta.try(t, d.key, "get", "pod", member, "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
		return said
	}
	before := map[string]string{}
	for _, member := range members {
		before[member] = restarts(member)
		output, err := exec.CommandContext(t.Context(), "pkill", "-KILL", "-f", fmt.Sprintf("advertise-client-urls=https://%s.etcd.%s.svc", member, d.key)).CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
	for _, member := range members {
		eventually(t, member+" is started again", func(context.Context) (bool, error) { return restarts(member) != before[member], nil })
	}
}

// patch sets a time in the spec.
func (d *drilled) patch(t *testing.T, field string, at time.Time) {
	t.Helper()
	d.meta.run(t, "default", "patch", "virtualcluster", d.name, "--type=merge", "-p", fmt.Sprintf(`{"spec": {%q: %q}}`, field, at.UTC().Format(time.RFC3339)))
}

// rotated waits until condition Rotated says something: in its message or its status.
func (d *drilled) rotated(t *testing.T, says string) {
	t.Helper()
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), interval, 10*time.Minute, true, func(context.Context) (bool, error) {
		said, err := d.meta.try(t, "default", "get", "virtualcluster", d.name, "-o", `jsonpath={.status.conditions[?(@.type=="Rotated")]['message','status']}`)
		return err == nil && strings.Contains(said, says), nil
	}), says)
}

// drill lets something happen, waits until the control plane takes a write again and until all of it is whole, says how
// long that took, and demands that all is there that was written before.
func (d *drilled) drill(t *testing.T, what string, happens func()) {
	t.Helper()
	began := time.Now()
	happens()
	var tenant *cluster
	last := ""
	until := func(condition wait.ConditionWithContextFunc) float64 {
		err := wait.PollUntilContextTimeout(t.Context(), interval, 5*time.Minute, true, condition)
		require.NoError(t, err, "%s: %s", what, last)
		return time.Since(began).Seconds()
	}
	writes := until(func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		tenant = d.meta.tenantOf(t, d.name)
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("drill-%d", d.written), Namespace: "default"}}
		_, err := tenant.client.CoreV1().ConfigMaps("default").Create(ctx, config, metav1.CreateOptions{})
		last = fmt.Sprint("a write: ", err)
		return err == nil || strings.Contains(err.Error(), "already exists"), nil
	})
	d.written++
	whole := until(func(ctx context.Context) (bool, error) {
		said, err := d.meta.try(t, "default", "get", "virtualcluster", d.name, "-o", `jsonpath={.status.conditions[?(@.type=="UpToDate")].status}`)
		ready, others := d.meta.try(t, d.key, "get", "statefulset/etcd", "deployment/kube-apiserver", "deployment/kube-controller-manager", "-o", `jsonpath={range .items[*]}{.status.readyReplicas} {end}`)
		last = fmt.Sprintf("UpToDate is %s, and so many are ready of each: %s; %v %v", said, ready, err, others)
		return err == nil && others == nil && said == "True" && ready == fmt.Sprintf("%d %d 1 ", d.members, d.servers), nil
	})
	list, err := tenant.client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	names := []string{}
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "drill-") {
			names = append(names, list.Items[i].Name)
		}
	}
	require.Len(t, names, d.written, "all is there that was written")
	t.Logf("%s: takes a write after %.0f s, is whole after %.0f s", what, writes, whole)
}
