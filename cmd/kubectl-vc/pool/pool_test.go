package pool

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/test/builders/vctest"
)

// TestPool: rows of super clusters, who has what in each, and what a program reads of them.
func TestPool(t *testing.T) {
	t.Parallel()
	all := Survey(vctest.Pool(), cli.RootsOf(vctest.Tenants()))
	vctest.Golden(t, "pool.table", vctest.Printed(t, func(p *page.Page) { printPool(p, all, false) }))
	vctest.Golden(t, "pool.wide", vctest.Printed(t, func(p *page.Page) { printPool(p, all, true) }))
	for i := range all {
		vctest.Golden(t, "pool."+all[i].Name, vctest.Printed(t, func(p *page.Page) { printSuperCluster(p, &all[i]) }))
	}
	for _, format := range []cli.Output{cli.OutputJSON, cli.OutputYAML, cli.OutputName} {
		var out bytes.Buffer
		c := &verbs{&cli.CLI{IOStreams: genericiooptions.IOStreams{Out: &out}}}
		require.NoError(t, c.Show(format, poolReport{SuperClusters: all[1:2]}, nodeNames(all), nil))
		vctest.Golden(t, "pool."+string(format), out.String())
	}
	for i, one := range withoutHoldings(all) {
		require.Empty(t, one.Holdings)
		require.Len(t, all[i].Holdings, one.Namespaces)
	}
}

// TestStatusOfSuperClusters: what STATUS says, by conditions and taints.
func TestStatusOfSuperClusters(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		node *corev1.Node
		lost bool
		want string
	}{
		"no virtual Node":            {want: "Missing"},
		"it works":                   {node: vctest.SuperNode("r1"), want: "Ready"},
		"no condition yet":           {node: vctest.SuperNode("r1", func(node *corev1.Node) { node.Status.Conditions = nil }), want: "NotReady"},
		"cordoned":                   {node: vctest.SuperNode("r1", vctest.Cordoned), want: "Ready,cordoned"},
		"draining, not seen":         {node: vctest.SuperNode("r1", vctest.Drains), want: "Ready,draining"},
		"draining":                   {node: vctest.SuperNode("r1", vctest.Drains, vctest.IsNotLeft), want: "Ready,draining"},
		"drained":                    {node: vctest.SuperNode("r1", vctest.Cordoned, vctest.Drains, vctest.IsLeft), want: "Ready,cordoned,Drained"},
		"drained by another taint":   {node: vctest.SuperNode("r1", vctest.Tainted("example.com/x", corev1.TaintEffectNoExecute), vctest.IsLeft), want: "Ready,Drained"},
		"drained no more, not seen":  {node: vctest.SuperNode("r1", vctest.IsLeft), want: "Ready"},
		"its Cluster was deleted":    {node: vctest.SuperNode("r1", vctest.Says(corev1.NodeReady, corev1.ConditionUnknown, schedulerv1alpha1.ReasonClusterRemoved, ""), vctest.IsNotLeft), want: "NotReady,draining"},
		"silent":                     {node: vctest.SuperNode("r1", vctest.Silent), want: "NotReady"},
		"lost":                       {node: vctest.SuperNode("r1", vctest.Silent), lost: true, want: "NotReady,lost"},
		"lost, and answers again":    {node: vctest.SuperNode("r1"), lost: true, want: "Ready"},
		"its machines are off":       {node: vctest.SuperNode("r1", vctest.Silent, vctest.Tainted(corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute)), want: "NotReady,lost"},
		"an operator's taint":        {node: vctest.SuperNode("r1", vctest.Tainted("example.com/gpu", corev1.TaintEffectNoSchedule)), want: "Ready,tainted"},
		"a taint of Kubernetes":      {node: vctest.SuperNode("r1", vctest.Tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)), want: "Ready"},
		"it is too old":              {node: vctest.SuperNode("r1", vctest.Says(schedulerv1alpha1.NodeVersionSkew, corev1.ConditionTrue, "", ""), vctest.Tainted(schedulerv1alpha1.TaintVersionSkew, corev1.TaintEffectNoSchedule)), want: "Ready,VersionSkew"},
		"nothing has its room":       {node: vctest.SuperNode("r1", vctest.Says(schedulerv1alpha1.NodeReplaceable, corev1.ConditionFalse, "", "")), want: "Ready,NotReplaceable"},
		"its room is not known":      {node: vctest.SuperNode("r1", vctest.Says(schedulerv1alpha1.NodeReplaceable, corev1.ConditionUnknown, "", "")), want: "Ready"},
		"more is reserved than held": {node: vctest.SuperNode("r1", vctest.Says(schedulerv1alpha1.NodeOvercommitted, corev1.ConditionTrue, "", "")), want: "Ready,Overcommitted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, strings.Join(statusOf(test.node, test.lost), ","))
		})
	}
}
