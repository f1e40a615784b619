#include "recon/mri/sense.h"

#include "gridding/base/vec.h"

int sense_open(struct sense *sense, struct dev *dev, struct normal *normal, size_t pixels, int coils, int batch,
               const struct c32 *maps)
{
    *sense = (struct sense){
        .dev = dev, .normal = normal, .pixels = pixels, .coils = coils, .batch = batch < coils ? batch : coils};
    sense->maps = maps;
    return dev_alloc(dev, (size_t)sense->batch * pixels * sizeof *sense->scratch, (void **)&sense->scratch);
}

void sense_close(struct sense *sense)
{
    dev_release(sense->dev, sense->scratch);
    sense->scratch = NULL;
}

static int apply(void *of, const struct c32 *x, struct c32 *r)
{
    struct sense *s = of;
    int rc = dev_zero(s->dev, r, s->pixels * sizeof *r);
    for (int first = 0; first < s->coils && rc == 0; first += s->batch) {
        const int count = s->coils - first < s->batch ? s->coils - first : s->batch;
        const struct c32 *maps = s->maps + (size_t)first * s->pixels;
        rc = s->ask ? s->ask(s->context) : 0;
        if (rc == 0)
            rc = vec_multiply(s->dev, s->pixels, count, maps, x, s->scratch); /* S_c x */
        if (rc == 0)
            rc = normal_apply(s->normal, count, s->scratch, s->scratch); /* A' W A S_c x */
        if (rc == 0)
            rc = vec_multiply_conj_add(s->dev, s->pixels, count, maps, s->scratch, r); /* r + conj(S_c) A' W A S_c x */
    }
    return rc;
}

struct op sense_op(struct sense *sense)
{
    return (struct op){.of = sense, .domain = sense->pixels, .range = sense->pixels, .normal = apply};
}

int sense_combine(struct sense *sense, int first, int count, const struct c32 *images, struct c32 *x)
{
    return vec_multiply_conj_add(sense->dev, sense->pixels, count, sense->maps + (size_t)first * sense->pixels, images,
                                 x);
}
