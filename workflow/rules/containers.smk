# The image of each stack, where the site runs cells in containers. Its key is known before it is built: planning needs
# neither image nor runtime. An image that was built elsewhere is taken where it lies ('gpustudy image import').

if plan.runtime != "none":

    rule build_image:
        output:
            plan.image_pattern,
        log:
            "results/logs/images/{stack}-{key}.log",
        conda:
            "../../envs/host.yaml"
        resources:
            **site.image_resources(),
        shell:
            "python -m gpustudy image build {wildcards.stack} --key {wildcards.key} 2>&1 | tee {log}"


rule images:
    input:
        plan.images,
