//go:build realnodes

package realnodes_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/test/modcache"
)

// TestGang: no container of a gang starts before all have a place, also where vc-scheduler is killed while members
// wait; then they start in one super cluster. A second gang, for which too little is left, starts nothing. It is not
// parallel: nothing is scheduled while vc-scheduler is away.
func TestGang(t *testing.T) {
	const namespace = "gangs"
	meta, tenant := connect(t, "meta"), tenant1(t)
	plugins, err := modcache.Dir(t.Context(), "sigs.k8s.io/scheduler-plugins")
	require.NoError(t, err)
	tenant.run(t, "", "apply", "-f", filepath.Join(plugins, "config", "crd", "bases", "scheduling.x-k8s.io_podgroups.yaml"))
	tenant.namespace(t, namespace, 6)
	eventually(t, "the namespace is placed", placed(tenant, namespace, map[string]int{"r1": 3, "r2": 3}))
	tenant.run(t, "", "annotate", "--overwrite", "namespace", namespace, schedulerv1alpha1.AnnotationPlacements+`={"r1":4,"r2":2}`)
	eventually(t, "only r1 has room for a gang", func(context.Context) (bool, error) {
		return meta.run(t, certificateName(t, tenant.name), "get", "namespaceplacement", namespace, "-o", "jsonpath={.status.clusters}") == "r1=4,r2=2", nil
	})
	group := func(name string) {
		command := tenant.kubectl(t, namespace, "create", "-f", "-")
		command.Stdin = strings.NewReader(`{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: ` + name + `}, spec: {minMember: 3}}`)
		output, err := command.CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
	member := func(group, name string) {
		pod := newPod(t, name, "exec sleep 3600")
		pod.Labels["scheduling.x-k8s.io/pod-group"] = group
		pod.Spec.SchedulerName = "gang"
		eventually(t, "pod "+name+" is created", func(ctx context.Context) (bool, error) {
			_, err := tenant.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			if apierrors.IsForbidden(err) {
				return false, nil // no ServiceAccount yet
			}
			return err == nil, err
		})
	}

	below := func(id string, want int) {
		t.Helper()
		pods, err := connect(t, id).client.CoreV1().Pods(certificateName(t, tenant.name)+"-"+namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, pods.Items, want, "pods in %s", id)
	}

	group("mpi")
	member("mpi", "mpi-1")
	member("mpi", "mpi-2")
	tenant.waits(t, namespace, "mpi-2", "gang mpi: 2 of 3 members are here")
	restart := exec.CommandContext(t.Context(), filepath.Join(root(t), "hack", "realnodes", "restart.sh"), "vc-scheduler")
	restart.Env = append(os.Environ(), "SIGNAL=KILL", "REALNODES_DIR="+bed(t))
	output, err := restart.CombinedOutput()
	require.NoError(t, err, "%s", output)
	// The next one looks at both again, and starts neither.
	tenant.waits(t, namespace, "mpi-2", "gang mpi: 2 of 3 members are here")
	below("r1", 0)
	below("r2", 0)
	member("mpi", "mpi-3")
	for _, name := range []string{"mpi-1", "mpi-2", "mpi-3"} {
		require.Equal(t, "r1", tenant.ready(t, namespace, name).Labels[schedulerv1alpha1.LabelSuperCluster])
	}

	group("late")
	for _, name := range []string{"late-1", "late-2", "late-3"} {
		member("late", name)
	}
	tenant.waits(t, namespace, "late-3", "gang late: no super cluster has room for 3 members")
	below("r1", 3)
	below("r2", 0)
	for _, name := range []string{"mpi-1", "mpi-2"} { // three slices in r1 are free then
		tenant.run(t, namespace, "delete", "pod", name)
	}
	for _, name := range []string{"late-1", "late-2", "late-3"} {
		require.Equal(t, corev1.PodRunning, tenant.ready(t, namespace, name).Status.Phase)
	}
}
