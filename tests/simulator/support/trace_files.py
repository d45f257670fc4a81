"""Small trace files, as the published ones look."""

from pathlib import Path

ELASTICFLOW = """\
job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration
b,200,300,bert,900,64,4,600
a,100,100,vgg16,250,128,1,100
c,200,50,bert,260,64,2,40
"""
SHORT = ELASTICFLOW.replace("submission_time,num_iteration", "submit_time,iteration").replace("deadline", "ddl")
EASYSCALE = """\
name,time,application,max_parallelism,batch_size,epochs,enable_heterogeneous_deterministic,preferred_gpu,
bert-0,115,bert,16,8,4,40,v100,0.4
yolov3-6,834,yolov3,8,8,4,0,p100,0.4
swin-60,900,swintransformer,32,32,90,1,v100
bert-0,950,bert,4,8,5,1,v100,0.4
"""
POLLUX = """\
name,time,application,num_replicas,batch_size
cifar10-0,53,cifar10,6,2048
bert-1,154,bert,8,384
"""
PHILLY = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48

2017-10-08 07:01:55,2951.0,8,2951.0,6214e9
"""
RATES = """\
global_batch_size,1,2,4,8
64,10,18,30,20
128,5,9,16,
"""


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    """A file of that text."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
