package soak

import (
	"context"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// taintOfOperator drains a super cluster.
var taintOfOperator = corev1.Taint{Key: "soak", Effect: corev1.TaintEffectNoExecute}

// operate does what operators do, and what they should not: it cordons and drains super clusters, and changes and
// deletes copies there.
func (b *bed) operate(ctx context.Context, random *rand.Rand) {
	for sleep(ctx, between(random, 2*time.Second, 10*time.Second)) == nil {
		super := b.supers[random.IntN(len(b.supers))]
		var err error
		switch draw := random.IntN(10); {
		case draw == 0:
			err = b.setNode(ctx, super, true, nil)
		case draw == 1:
			err = b.setNode(ctx, super, false, []corev1.Taint{taintOfOperator})
		case draw <= 4:
			err = b.setNode(ctx, super, false, nil)
		default:
			err = tamper(ctx, super, random)
		}
		if err != nil && ctx.Err() == nil && !expected(err) {
			b.Say("The operator met: %v", err)
		}
	}
}

// setNode sets whether the virtual Node of a super cluster is cordoned, and the operator's taints on it.
func (b *bed) setNode(ctx context.Context, super *cluster, cordoned bool, taints []corev1.Taint) error {
	node := &corev1.Node{}
	if err := b.meta.client.Get(ctx, client.ObjectKey{Name: super.name}, node); err != nil {
		return err
	}
	node.Spec.Unschedulable = cordoned
	kept := taints
	for _, taint := range node.Spec.Taints {
		if taint.Key != taintOfOperator.Key {
			kept = append(kept, taint)
		}
	}
	node.Spec.Taints = kept
	return b.meta.client.Update(ctx, node)
}

// tamper changes or deletes a copy of a tenant's object in a super cluster.
func tamper(ctx context.Context, super *cluster, random *rand.Rand) error {
	ours := client.HasLabels{tenancyv1alpha1.LabelCluster}
	switch random.IntN(4) {
	case 0:
		var list corev1.ConfigMapList
		if err := super.client.List(ctx, &list, ours); err != nil || len(list.Items) == 0 {
			return err
		}
		object := &list.Items[random.IntN(len(list.Items))]
		object.Data = map[string]string{"tampered": "yes"}
		return super.client.Update(ctx, object)
	case 1:
		var list corev1.SecretList
		if err := super.client.List(ctx, &list, ours); err != nil || len(list.Items) == 0 {
			return err
		}
		return super.client.Delete(ctx, &list.Items[random.IntN(len(list.Items))])
	case 2:
		var list corev1.ServiceList
		if err := super.client.List(ctx, &list, ours); err != nil || len(list.Items) == 0 {
			return err
		}
		return super.client.Delete(ctx, &list.Items[random.IntN(len(list.Items))])
	default:
		var list corev1.PodList
		if err := super.client.List(ctx, &list, ours); err != nil || len(list.Items) == 0 {
			return err
		}
		return super.client.Delete(ctx, &list.Items[random.IntN(len(list.Items))])
	}
}

// killPrograms kills one of ours now and then, and starts each again that has ended.
func (b *bed) killPrograms(ctx context.Context, random *rand.Rand) {
	for next := time.Now().Add(between(random, 20*time.Second, time.Minute)); sleep(ctx, time.Second) == nil; {
		if time.Now().After(next) {
			next = time.Now().Add(between(random, 10*time.Second, time.Minute))
			p := b.programs[random.IntN(len(b.programs))]
			b.Say("Killing %s", p.Name)
			p.Process.Kill()
			p.kills++
		}
		b.restart()
	}
}

// restart starts each of our programs again that has ended.
func (b *bed) restart() {
	for _, p := range b.programs {
		if !p.Process.Ended() {
			continue
		}
		p.starts++
		if err := b.Launch(p.Program); err != nil {
			b.Say("Starting %s: %v", p.Name, err)
		}
	}
}

// changeWeather changes the weather at one API server until ctx ends.
func (b *bed) changeWeather(ctx context.Context, at *proxy, random *rand.Rand) {
	for ctx.Err() == nil {
		next, lasts := forecast(random)
		at.set(next)
		_ = sleep(ctx, lasts) // the loop ends with ctx
	}
}
